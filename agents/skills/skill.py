"""Skills, and the parser of their `SKILL.md` files."""

import re
from pathlib import Path
from typing import Literal

import attrs

from coterie.agents.definitions.definition_files import FileProblem
from coterie.agents.definitions.front_matter_fields import FrontMatterFields
from coterie.agents.definitions.list_fields import tool_names
from coterie.agents.loop.conversation.transcript_records import UsedSkill
from coterie.memory.front_matter.front_matter import parse_front_matter
from coterie.memory.front_matter.yaml_fields import quote_text

SkillScope = Literal["user", "agents", "claude", "project"]
"""Whose skill it is, from the weakest to the strongest: the user's, or the project's in one of three directories."""


@attrs.frozen(kw_only=True)
class Skill:
    """What there is to know of a skill before it is used."""

    name: str
    """Lower-case letters, digits and hyphens."""
    description: str
    """When to use it, on one line, in words for the model."""
    scope: SkillScope
    source: Path
    """Its file, as people know it."""
    file: Path
    """The same with all links followed."""
    allowed_tools: tuple[str, ...] = ()
    """What it would like to use. It gives no right to anything: see `docs/skills.md`."""
    argument_hint: str | None = None
    """What to write behind its name, in words for people."""
    is_for_model: bool = True
    """Whether an agent may start it, and is told of it."""
    is_for_user: bool = True
    """Whether the user may start it, as `/name`."""

    @property
    def directory(self) -> Path:
        """Where its other files are, with all links followed."""
        return self.file.parent

    def used(self, arguments: str = "") -> UsedSkill:
        """That it is used, with *arguments*, as a transcript keeps it."""
        return UsedSkill(name=self.name, file=str(self.file), arguments=arguments)


NAME = re.compile(r"[a-z0-9-]{1,64}")
RULE = "a name is at most 64 lower-case letters, digits and hyphens"
LONGEST = 1_024
"""Characters of a description."""
RIGHTS = "it gives no rights; `permissions.allow` in your settings does"
MODEL = "another model could use nothing of the conversation that is cached; a kind of agent can have its own"
PLAIN = "it is loaded into the conversation that uses it"
OTHERS = "nothing here depends on it"


def parse_skill(
    text: str, *, path: Path, scope: SkillScope, file: Path | None = None
) -> tuple[Skill | None, list[FileProblem]]:
    """Read *text*, the content of *path*, whatever it is; *file* is the same path with links followed.

    Without front matter, or a name that can be used, there is no skill; the problems say why. Never raises.
    """
    reader = _SkillParser(path=path, front=parse_front_matter(text))
    skill = reader.parse(scope, file or path)
    return skill, reader.sorted_problems()


class _SkillParser(FrontMatterFields):
    keys = ("name", "description", "allowed-tools", "argument-hint", "disable-model-invocation", "user-invocable")
    set_aside = {  # noqa: RUF012 - a constant, as the class it overrides says
        "tools": "a skill has no tools of its own",
        "model": MODEL,
        "effort": MODEL,
        "context": PLAIN,
        "agent": PLAIN,
        "hooks": "hooks are set in settings and in definitions of agents",
        "mcp-servers": "servers are set in `.mcp.json` and in definitions of agents",
        **dict.fromkeys(("license", "metadata", "version", "author", "tags", "compatibility", "source"), OTHERS),
        **dict.fromkeys(("dependencies", "origin", "triggers", "category", "date_added", "risk", "id"), OTHERS),
    }

    def parse(self, scope: SkillScope, file: Path) -> Skill | None:
        for note in self.front.notes:
            self.add_problem("note", note.line, note.reason)
        if self.front.line is None:
            self.add_problem(
                "error", 1, "no front matter: begin with a line `---`, then name and description, then `---`"
            )
            return None
        self.match_keys()
        name, description = self._name(), self._description()
        if name is None or description is None:
            return None
        if not self.front.body.strip():
            self.add_problem("warning", self.front.line, "there is no text: say below the front matter what to do")
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
        """The name that the file says, or else that of its directory."""
        written, directory = self.text("name"), self.path.parent.name
        if written is not None and NAME.fullmatch(written):
            return written
        if NAME.fullmatch(directory):
            what = "there is no name" if written is None else f"{quote_text(written)} cannot be a name: {RULE}"
            self.add_error("name", "warning", f"{what}; it is called {directory}, as its directory")
            return directory
        what = "there is no name" if written is None else f"{quote_text(written)} cannot be a name"
        self.add_error("name", "error", f"{what}: {RULE}, as in `name: release-notes`")
        return None

    def _description(self) -> str | None:
        """What the file says on one line, or else its first paragraph."""
        written = self.text("description")
        if written is None:
            paragraphs = (part for part in self.front.body.split("\n\n") if part.strip() and not part.startswith("#"))
            written = next(paragraphs, None)
            missing = "there is no description: add a line such as `description: Writes notes. Use before a release.`"
            if written is None:
                self.add_error("description", "error", missing)
            else:
                self.add_error("description", "warning", f"{missing}; the first paragraph stands for it")
        elif len(written) > LONGEST:
            reason = f"description has {len(written):,} characters, and more than {LONGEST:,} are not told"
            self.add_error("description", "warning", reason)
        return None if written is None else " ".join(written.split())[:LONGEST]

    def _hint(self) -> str | None:
        # `[issue]` is a list in YAML, and the usual way to write a hint.
        value = self.value("argument-hint")
        if isinstance(value, list):
            return f"[{', '.join(map(str, value))}]" if value else None
        return self.text("argument-hint")

    def _allowed_tools(self) -> tuple[str, ...]:
        value = self.value("allowed-tools")
        if value is None:
            return ()
        self.add_error("allowed-tools", "note", f"allowed-tools says what the skill would like to use; {RIGHTS}")
        return tuple(tool_names(value) or ("*",))
