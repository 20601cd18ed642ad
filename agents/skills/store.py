"""Skill store: all skills of a project, with precedence between equal names."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import get_args

import attrs

from coterie.agents.definitions.definition_files import FileProblem, read_text, replacement_problem
from coterie.agents.skills.skill import Skill, SkillScope, parse_skill
from coterie.paths import home_directory, project_directory, project_root
from coterie.suggestions import closest_match

DIRECTORY = "skills"
FILE = "SKILL.md"
MOST = 1_000
"""Maximum number of skills that are loaded from one directory."""


@attrs.frozen(kw_only=True)
class Skills:
    """Loaded skills, and the problems in their files."""

    by_name: Mapping[str, Skill] = attrs.field(factory=dict)
    """Skills of the project first, then of the user; each group in the order of names."""
    problems: tuple[FileProblem, ...] = ()
    files: int = 0
    """Number of files that were read."""

    @property
    def for_model(self) -> list[Skill]:
        """Skills that an agent may load."""
        return [skill for skill in self.by_name.values() if skill.is_for_model]

    def missing(self, name: str) -> str:
        """Return an error text for an unknown skill *name*, with similar names if there are any."""
        near = closest_match(name, self.by_name)
        return f"unknown skill {name!r}" + (f"; did you mean {' or '.join(near)}?" if near else "")


def load_skills(directory: Path) -> Skills:
    """Load all skills for work in *directory*.

    Order: of the user, then of the project in `.agents`, in `.claude` and in its own directory; a later skill replaces
    an earlier one of the same name. A skill of the project that leads outside of the project by a link is rejected,
    because a repository must not expose other files of the user to the model. Problems in files do not raise; they are
    in the result. Blocks on the disk.
    """
    root, own = project_root(directory), project_directory(directory) / DIRECTORY
    places: dict[Path, SkillScope] = {
        home_directory() / DIRECTORY: "user",
        root / ".agents" / DIRECTORY: "agents",
        root / ".claude" / DIRECTORY: "claude",
    }
    # The project's directory may be .claude itself; its skills then have the scope of the project.
    places.pop(own, None)
    return _load([(scope, place) for place, scope in {**places, own: "project"}.items()], root)


def load_skill_path(path: Path) -> Skills:
    """Load the file *path*, the skill in the directory *path*, or all skills below it, with the scope of the user."""
    if path.is_file():
        return _load([("user", path)], None)
    return _load([("user", path / FILE if (path / FILE).is_file() else path)], None)


def _load(places: Iterable[tuple[SkillScope, Path]], root: Path | None) -> Skills:
    by_name: dict[str, Skill] = {}
    problems: list[FileProblem] = []
    files = 0
    for scope, place in places:
        for path in [place] if place.is_file() else _find(place, problems):
            files += 1
            skill, file_problems = _read(path, scope, None if scope == "user" else root)
            problems += file_problems
            if skill is None:
                continue
            if (old := by_name.get(skill.name)) is not None:
                name = f"{old.name!r} of {old.source}"
                problems.append(replacement_problem(path, name, is_same_scope=old.scope == scope))
            by_name[skill.name] = skill
    strongest = get_args(SkillScope)[::-1]
    order = sorted(by_name.values(), key=lambda skill: (strongest.index(skill.scope), skill.name))
    return Skills(by_name={skill.name: skill for skill in order}, problems=tuple(problems), files=files)


def _find(place: Path, problems: list[FileProblem]) -> Iterator[Path]:
    """Yield the file of each skill in *place*, in the order of the directories."""
    try:
        names = sorted(entry.name for entry in place.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as exc:
        problems.append(FileProblem(path=place, reason=f"cannot be searched: {exc.strerror}"))
        return
    if len(names) > MOST:
        reason = f"there are {len(names):,} entries; only the first {MOST:,} are read"
        problems.append(FileProblem(path=place, reason=reason))
    for name in names[:MOST]:
        path = place / name / FILE
        if not name.startswith(".") and os.path.lexists(path):
            yield path


def _read(path: Path, scope: SkillScope, root: Path | None) -> tuple[Skill | None, list[FileProblem]]:
    file = Path(os.path.realpath(path))
    if root is not None and not file.is_relative_to(root.resolve()):
        reason = f"leads outside of the project, to {file}; copy the skill to this place, or to your own skills"
        return None, [FileProblem(path=path, reason=reason)]
    text = read_text(path)
    return (None, [text]) if isinstance(text, FileProblem) else parse_skill(text, path=path, scope=scope, file=file)
