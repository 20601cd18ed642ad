"""A gate for calls that are worth little: who is not admitted soon gives up."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import trio

from coterie.agents.errors import AgentError
from coterie.agents.gate import Gate, Intent, Permit


@attrs.define(eq=False)
class GateBusy(AgentError):
    """A call was not admitted in time: the session cools down, or others come first."""

    patience: float

    def __str__(self) -> str:
        return f"the call was not admitted within {self.patience:g} seconds"


@attrs.frozen(kw_only=True)
class ImpatientGate:
    """A `Gate` that is another one for as long as nobody has to wait at it."""

    gate: Gate
    patience: float
    """Seconds."""

    @asynccontextmanager
    async def admit(self, intent: Intent) -> AsyncIterator[Permit]:
        """As `Gate.admit`; raises `GateBusy` when patience is at its end, with nothing left behind."""
        async with AsyncExitStack() as stack:
            with trio.move_on_after(self.patience) as waiting:
                permit = await stack.enter_async_context(self.gate.admit(intent))
            if waiting.cancelled_caught:
                raise GateBusy(self.patience)
            yield permit

    def cool_down(self, seconds: float) -> None:
        """As `Gate.cool_down`, for all."""
        self.gate.cool_down(seconds)
