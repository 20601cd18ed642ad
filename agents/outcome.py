"""What a run of the loop tells while it goes on, and what it came to."""

from decimal import Decimal
from typing import Any, Literal

import attrs

from coterie.agents.errors import ModelError
from coterie.agents.model.reply import Reply
from coterie.agents.tools.tool import ToolResult
from coterie.agents.usage import Usage

EndReason = Literal["completed", "max_turns", "prompt_too_long", "refused", "cut_off", "model_error"]
"""completed: the model had no more calls to make. cut_off: a reply did not fit, even at the largest size."""


@attrs.frozen(kw_only=True)
class ReplyArrived:
    """The model has answered, and its reply is in the transcript."""

    turn: int
    reply: Reply
    cost: Decimal
    """Dollars, exact."""


@attrs.frozen(kw_only=True)
class ToolEnded:
    """A tool call has its result; the transcript has it once all calls of the turn are done."""

    call: dict[str, Any]
    result: ToolResult
    seconds: float


Step = ReplyArrived | ToolEnded


@attrs.frozen(kw_only=True)
class Ended:
    """The end of a run of the loop."""

    reason: EndReason
    text: str = ""
    """The text of the last reply."""
    turns: int = 0
    usage: Usage = attrs.field(factory=Usage)
    cost: Decimal = Decimal(0)
    """Dollars, exact."""
    error: ModelError | None = None
    """What the model's service said, for `model_error` and some `prompt_too_long`."""
