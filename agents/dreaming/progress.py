"""What a dream has done so far: for those who watch it, and for what becomes of it."""

from collections import deque
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Literal

import attrs
import msgspec

from coterie.agents.agent import Answer
from coterie.agents.events import Dreamed
from coterie.agents.model.reply import Reply
from coterie.agents.models import Model
from coterie.agents.permissions.helper_rights import HelperRights
from coterie.memory.dreaming.change import TURNS_KEPT, DreamChange

SHOWN = 300
"""Characters of a turn that are kept."""

State = Literal["starting", "updating", "completed", "failed", "killed"]


@attrs.define(eq=False)
class Progress:
    """One dream: its state, what it cost, and its last turns."""

    _model: Model
    _tell: Callable[[Dreamed], None]
    state: State = "starting"
    cost: Decimal = Decimal(0)
    replies: int = 0
    turns: deque[str] = attrs.field(factory=lambda: deque(maxlen=TURNS_KEPT))
    """What the model said and called."""

    def take(self, reply: Reply, answers: Sequence[Answer]) -> bool:
        """Count *reply*; with the first file that it has written the dream is updating. Never ends it."""
        self.replies += 1
        self.cost += self._model.cost(reply.usage)
        calls = [f"{call['name']} {_subject(call['input'])}".rstrip() for call in reply.tool_calls]
        self.turns.append("; ".join([*([reply.text.strip()] if reply.text.strip() else []), *calls])[:SHOWN])
        wrote = any(answer.call["name"] in HelperRights.writing and not answer.result.is_error for answer in answers)
        if wrote and self.state == "starting":
            self.enter("updating")
        return False

    def enter(self, state: State, change: DreamChange | None = None, reason: str | None = None) -> None:
        """Be in *state*, and tell."""
        self.state = state
        told = Dreamed(state=state, reason=reason, cost_usd=format(self.cost, "f"))
        if change is not None:
            told = msgspec.structs.replace(
                told,
                change=change.id if change.files else None,
                applied=change.count("applied"),
                waiting=change.count("waiting"),
                dropped=change.count("dropped"),
                seconds=change.seconds,
            )
        self._tell(told)


def _subject(arguments: object) -> str:
    """What a call is about, as far as one argument says it."""
    given = arguments if isinstance(arguments, dict) else {}
    return str(next((given[name] for name in ("file_path", "pattern", "path", "command") if name in given), ""))
