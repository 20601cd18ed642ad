"""A skill, as its file says; the text that it is there for is read when it is used."""

from pathlib import Path
from typing import Literal

import attrs

from coterie.agents.conversation.records import UsedSkill

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
