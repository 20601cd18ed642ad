"""What can be wrong with a fork.

AgentError
├── PrefixDiffers            a fork does not begin with its parent's bytes: a bug, or damage on the way
└── ToolFailed
    └── ForkRefused          there can be no fork here: the model that asked for one is told why
"""

import attrs

from coterie.agents.errors import AgentError, ToolFailed


@attrs.define(eq=False)
class PrefixDiffers(AgentError):
    """The prefix of a fork is not the one of its parent."""

    index: int | None
    """The first segment that differs; None if the key header does already."""
    detail: str
    """What is there instead of what."""

    def __str__(self) -> str:
        where = "the key header" if self.index is None else f"segment {self.index}"
        return f"the fork does not begin with its parent's conversation: {where} differs, {self.detail}"


class ForkRefused(ToolFailed):
    """A fork was asked for where there can be none."""
