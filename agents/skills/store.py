"""Skill store: all skills of a project, and which of two with one name counts."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import get_args

import attrs

from coterie.agents.definitions.definition_files import FileProblem, Severity, read_text
from coterie.agents.skills.skill import Skill, SkillScope, parse_skill
from coterie.paths import home_directory, project_directory, project_root
from coterie.suggestions import closest_match

DIRECTORY = "skills"
FILE = "SKILL.md"
MOST = 1_000
"""Skills of one place; nobody keeps more on purpose."""


@attrs.frozen(kw_only=True)
class Skills:
    """What was found."""

    by_name: Mapping[str, Skill] = attrs.field(factory=dict)
    """The project's first, then the user's, those of one place in the order of their names."""
    problems: tuple[FileProblem, ...] = ()
    files: int = 0
    """How many files were looked at."""

    @property
    def for_model(self) -> list[Skill]:
        """Those that an agent may start."""
        return [skill for skill in self.by_name.values() if skill.is_for_model]

    def missing(self, name: str) -> str:
        """What to say of a *name* that no skill has: the nearest ones, if there are any."""
        near = closest_match(name, self.by_name)
        return f"there is no skill {name!r}" + (f"; did you mean {' or '.join(near)}?" if near else "")


def load_skills(directory: Path) -> Skills:
    """Read all skills that hold for work in *directory*.

    The user's, then the project's in `.agents`, in `.claude` and in its own directory: of one name the later counts.
    A project's skill that leads out of the project by a link is none: a repository must not open other files of the
    user to the model. Nothing about a file raises; it is among the problems. Blocks on the disk.
    """
    root, own = project_root(directory), project_directory(directory) / DIRECTORY
    places: dict[Path, SkillScope] = {
        home_directory() / DIRECTORY: "user",
        root / ".agents" / DIRECTORY: "agents",
        root / ".claude" / DIRECTORY: "claude",
    }
    # The project's directory may be .claude itself; then its skills are the project's own.
    places.pop(own, None)
    return _load([(scope, place) for place, scope in {**places, own: "project"}.items()], root)


def load_skill_path(path: Path) -> Skills:
    """Read the file *path*, the skill in the directory *path*, or all skills below it, as those of the user."""
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
            skill, told = _read(path, scope, None if scope == "user" else root)
            problems += told
            if skill is not None:
                problems += _shadowing(skill, by_name.pop(skill.name, None))
                by_name[skill.name] = skill
    strongest = get_args(SkillScope)[::-1]
    order = sorted(by_name.values(), key=lambda skill: (strongest.index(skill.scope), skill.name))
    return Skills(by_name={skill.name: skill for skill in order}, problems=tuple(problems), files=files)


def _find(place: Path, problems: list[FileProblem]) -> Iterator[Path]:
    """The file of each skill in *place*, in the order of their directories."""
    try:
        names = sorted(entry.name for entry in place.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as exc:
        problems.append(_error(place, f"cannot be searched: {exc.strerror}"))
        return
    if len(names) > MOST:
        problems.append(_error(place, f"there are {len(names):,} entries, and only the first {MOST:,} are looked at"))
    for name in names[:MOST]:
        path = place / name / FILE
        if not name.startswith(".") and os.path.lexists(path):
            yield path


def _read(path: Path, scope: SkillScope, root: Path | None) -> tuple[Skill | None, list[FileProblem]]:
    file = Path(os.path.realpath(path))
    if root is not None and not file.is_relative_to(root.resolve()):
        return None, [
            _error(path, f"leads out of the project, to {file}; put the skill itself here, or among your own")
        ]
    text = read_text(path)
    return (None, [text]) if isinstance(text, FileProblem) else parse_skill(text, path=path, scope=scope, file=file)


def _shadowing(winner: Skill, loser: Skill | None) -> list[FileProblem]:
    """That *loser* no longer counts; in one place that is an accident, across places it is how to override."""
    if loser is None:
        return []
    severity: Severity = "warning" if winner.scope == loser.scope else "note"
    reason = f"takes the place of {loser.name!r} of {loser.source}"
    return [FileProblem(path=winner.source, line=1, severity=severity, reason=reason)]


def _error(path: Path, reason: str) -> FileProblem:
    return FileProblem(path=path, line=1, severity="error", reason=reason)
