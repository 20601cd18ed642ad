"""Skills (stored instructions for agents): the parser of `SKILL.md` files, and all skills of a project by name."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

import attrs

from coterie.agents.definitions.definition_files import FileProblem, read_text, replacement_problem
from coterie.agents.definitions.front_matter_fields import FrontMatterFields
from coterie.agents.definitions.list_fields import tool_names
from coterie.agents.loop.conversation.transcript_records import UsedSkill
from coterie.memory.front_matter.yaml_fields import quote_text
from coterie.paths import home_directory, project_directory, project_root
from coterie.suggestions import closest_match

SkillScope = Literal["user", "agents", "claude", "project"]
"""Place of a skill, weakest first: it replaces one of the same name in a weaker place. `user` is not in the project."""
NAME = re.compile(r"[a-z0-9-]{1,64}")
RULE = "a name is at most 64 lower-case letters, digits and hyphens"
LONGEST = 1_024
"""Maximum number of characters of a skill's description."""
RIGHTS = "it grants no permissions; use `permissions.allow` in your settings"
MODEL = "another model could not use the cached conversation; set it in an agent definition"
PLAIN = "a skill always works in the conversation that loads it; remove the key"
OTHERS = "skills do not use this key; it may stay"
DIRECTORY = "skills"
FILE = "SKILL.md"
MOST = 1_000
"""Maximum number of entries of one directory that are searched for skills; further entries are ignored."""


@attrs.frozen(kw_only=True)
class Skill:
    """Properties of a skill from the header of its file; its text is read only when an agent loads the skill."""

    name: str
    """Name of the skill: lower-case letters, digits and hyphens."""
    description: str
    """Purpose of the skill in one line, from which the model decides when to load it."""
    scope: SkillScope
    source: Path
    """Path of the skill's file as found, with links, for messages to the user."""
    file: Path
    """Path of the skill's file with all links resolved."""
    allowed_tools: tuple[str, ...] = ()
    """Tools that the skill's author lists for it. They grant no permissions: see `docs/skills.md`."""
    argument_hint: str | None = None
    """Hint for users about the arguments that follow `/name`, such as `[issue]`; None without a hint."""
    is_for_model: bool = True
    """True if agents see the skill in their list and may load it by themselves."""
    is_for_user: bool = True
    """True if the user may load the skill by beginning a message with `/name`."""

    @property
    def directory(self) -> Path:
        """Directory of the skill's file, with all links resolved."""
        return self.file.parent

    def used(self, arguments: str = "") -> UsedSkill:
        """Return a record that the skill was loaded with *arguments*, which the agent writes to its transcript."""
        return UsedSkill(name=self.name, file=str(self.file), arguments=arguments)


def parse_skill(
    text: str, *, path: Path, scope: SkillScope, file: Path | None = None
) -> tuple[Skill | None, list[FileProblem]]:
    """Parse *text*, the content of *path*, to a skill and its problems; *file* is *path* with links resolved.

    The skill is None without front matter, valid name or description; a problem then gives the reason. Never raises.
    """
    reader = _SkillParser(path=path, content=text)
    return reader.parse(scope, file or path), reader.sorted_problems()


class _SkillParser(FrontMatterFields):
    keys = ("name", "description", "allowed-tools", "argument-hint", "disable-model-invocation", "user-invocable")
    set_aside = {  # noqa: RUF012 - a constant, declared as such in the base class
        "tools": "a skill has no tools of its own; set them in an agent definition",
        "model": MODEL,
        "effort": MODEL,
        "context": PLAIN,
        "agent": PLAIN,
        "hooks": "hooks are set in settings and agent definitions",
        "mcp-servers": "servers are set in `.mcp.json` and agent definitions",
        **dict.fromkeys(("license", "metadata", "version", "author", "tags", "compatibility", "source"), OTHERS),
        **dict.fromkeys(("dependencies", "origin", "triggers", "category", "date_added", "risk", "id"), OTHERS),
    }

    def parse(self, scope: SkillScope, file: Path) -> Skill | None:
        if not self.has_front_matter():
            return None
        name, description = self._name(), self._description()
        if name is None or description is None:
            return None
        if not self.front.body.strip():
            reason = "the text of the skill is empty: write the instructions below the front matter"
            self.add_problem("warning", self.front.line or 1, reason)
        return Skill(
            name=name,
            description=description,
            scope=scope,
            source=self.path,
            file=file,
            allowed_tools=self._allowed_tools(),
            argument_hint=self._hint(),
            is_for_model=not self.flag("disable-model-invocation"),
            is_for_user=self.flag("user-invocable", default=True),
        )

    def _name(self) -> str | None:
        """Return the valid name in the file, or else the directory's name; None, with an error, if both are invalid."""
        written, directory = self.text("name"), self.path.parent.name
        if written is not None and NAME.fullmatch(written):
            return written
        if NAME.fullmatch(directory):
            what = "the name is missing" if written is None else f"{quote_text(written)} is not a valid name: {RULE}"
            self.add_error("name", "warning", f"{what}; the name of the directory is used: {directory}")
            return directory
        what = "the name is missing" if written is None else f"{quote_text(written)} is not a valid name"
        self.add_error("name", "error", f"{what}: {RULE}, as in `name: release-notes`")
        return None

    def _description(self) -> str | None:
        """Return the description on one line, or else the first paragraph of the text; None if both are missing."""
        written = self.text("description")
        if written is None:
            paragraphs = (part for part in self.front.body.split("\n\n") if part.strip() and not part.startswith("#"))
            written = next(paragraphs, None)
            missing = "description is missing: add a line such as `description: Writes notes. Use before a release.`"
            if written is None:
                self.add_error("description", "error", missing)
            else:
                self.add_error("description", "warning", f"{missing}; the first paragraph is used instead")
        elif len(written) > LONGEST:
            reason = f"description has {len(written):,} characters; only the first {LONGEST:,} are used: shorten it"
            self.add_error("description", "warning", reason)
        return None if written is None else " ".join(written.split())[:LONGEST]

    def _hint(self) -> str | None:
        # `[issue]` is a list in YAML, and the usual notation of a hint.
        value = self.value("argument-hint")
        if isinstance(value, list):
            return f"[{', '.join(map(str, value))}]" if value else None
        return self.text("argument-hint")

    def _allowed_tools(self) -> tuple[str, ...]:
        value = self.value("allowed-tools")
        if value is None:
            return ()
        self.add_error("allowed-tools", "note", f"allowed-tools lists what the skill would like to use; {RIGHTS}")
        return tuple(tool_names(value) or ("*",))


@attrs.frozen(kw_only=True)
class Skills:
    """All skills that were loaded from some directories, and the problems found in their files."""

    by_name: Mapping[str, Skill] = attrs.field(factory=dict)
    """Skills by name, sorted by place, strongest first (those of the user are last), then by name."""
    problems: tuple[FileProblem, ...] = ()
    files: int = 0
    """Number of `SKILL.md` files that were found, including files with errors."""

    @property
    def for_model(self) -> list[Skill]:
        """Skills that agents may load by themselves; the others are for the user only."""
        return [skill for skill in self.by_name.values() if skill.is_for_model]

    def missing(self, name: str) -> str:
        """Return the error line for an unknown skill *name*, with similar names if there are any."""
        near = closest_match(name, self.by_name)
        return f"unknown skill {name!r}" + (f"; did you mean {' or '.join(near)}?" if near else "; no name is similar")


def load_skills(directory: Path) -> Skills:
    """Load all skills of the user and of the project that contains *directory*. Blocks on the disk.

    Order: user, then `.agents`, `.claude` and `.coterie` of the project; a later skill replaces an earlier one of the
    same name. A skill of the project that a link leads outside of the project is rejected, because a repository must
    not expose other files of the user to the model. Problems in files are part of the result and raise nothing.
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
    """Load the file *path*, the skill in the directory *path*, or all skills in it, as skills of the user. Blocks."""
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
    """Yield the paths of `SKILL.md` files in subdirectories of *place*, sorted; *problems* gets its problems."""
    try:
        names = sorted(entry.name for entry in place.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as exc:
        problems.append(FileProblem(path=place, reason=f"skills cannot be read: {exc.strerror}; check the permissions"))
        return
    if len(names) > MOST:
        reason = f"the directory has {len(names):,} entries; only the first {MOST:,} are read; remove some"
        problems.append(FileProblem(path=place, reason=reason))
    for name in names[:MOST]:
        path = place / name / FILE
        if not name.startswith(".") and os.path.lexists(path):
            yield path


def _read(path: Path, scope: SkillScope, root: Path | None) -> tuple[Skill | None, list[FileProblem]]:
    file = Path(os.path.realpath(path))
    if root is not None and not file.is_relative_to(root.resolve()):
        reason = f"the link leads outside of the project, to {file}; copy the skill to this place or to your skills"
        return None, [FileProblem(path=path, reason=reason)]
    text = read_text(path)
    return (None, [text]) if isinstance(text, FileProblem) else parse_skill(text, path=path, scope=scope, file=file)
