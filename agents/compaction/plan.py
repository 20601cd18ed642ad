"""What a compaction is going to do: what stays, and what stands for the rest."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Literal

import attrs

from coterie.agents.conversation.records import Way

Side = Literal["from", "up_to"]


@attrs.frozen(kw_only=True)
class Pivot:
    """A part of the conversation, by a message: all from it on, or all before it."""

    side: Side
    message: int
    """Counted from 1."""


@attrs.frozen(kw_only=True)
class Plan:
    """A summary, and the messages that it stands for: those from *first* up to *start*."""

    by: Way
    summary: str
    start: int
    first: int = 0
    """More than 0 only when a part was chosen by hand: then what is before keeps its bytes, and its place in the
    cache."""
    cost: Decimal = Decimal(0)
    passed_over: Mapping[str, str] = attrs.field(factory=dict)
    """Why not, by way: those that are cheaper."""


@attrs.frozen
class NotTaken:
    """A way that does not lead anywhere now."""

    reason: str
