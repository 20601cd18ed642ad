"""What is wrong with the file of a team, where, and the error that tells all of it at once."""

from pathlib import Path

import attrs

from coterie.agents.errors import ConfigInvalid


@attrs.frozen(kw_only=True)
class Flaw:
    """One thing that must be mended."""

    path: Path
    line: int
    reason: str
    """What is wrong and what would be right, in one line."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


@attrs.define(eq=False)
class TeamInvalid(ConfigInvalid):
    """The file of a team cannot be used."""

    flaws: tuple[Flaw, ...] = ()
    """All that is wrong with it, in the order of its lines."""

    @classmethod
    def of(cls, *flaws: Flaw) -> "TeamInvalid":
        """The error for *flaws* of one file."""
        ordered = tuple(sorted(flaws, key=lambda flaw: flaw.line))
        return cls(str(ordered[0].path), ordered[0].reason, ordered)

    def __str__(self) -> str:
        return "\n".join(map(str, self.flaws))
