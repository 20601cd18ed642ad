"""What comes of a plan: somebody else judges it, and it is done only after a yes."""

from collections.abc import Sequence
from typing import Protocol

import attrs


@attrs.frozen(kw_only=True)
class Judgement:
    """What was decided over a plan."""

    approve: bool
    by: str
    """lead, human or rule; root, if nobody was asked."""
    feedback: str = ""


class Judge(Protocol):
    """Whoever brings a plan before those who decide."""

    async def submit(self, plan: str, files: Sequence[str]) -> Judgement:
        """Wait for the judgement, however long that takes. Cancellation withdraws the plan."""
        ...
