"""What hooks have to say to the model that is no answer to a call: it comes with the next message."""

from collections.abc import Iterable, Sequence

import attrs

from coterie.agents.agent import NOTHING, Added, Agent, Answer
from coterie.agents.conversation import text_block
from coterie.agents.hooks.hook import HookEvent
from coterie.agents.outcome import EndReason
from coterie.agents.prompt import render


@attrs.define(eq=False)
class Remarks:
    """Keeps what hooks say until the model hears it, and whether one of them wants the run to end."""

    stop: str | None = None
    """Why it is to end; None if it is not."""
    _by_call: dict[str, list[bytes]] = attrs.field(factory=dict, init=False)

    def note(self, call: str, event: HookEvent, texts: Iterable[str]) -> None:
        """Keep *texts*, which were said about *call*."""
        self._by_call.setdefault(call, []).extend(remark(event, text) for text in texts)

    def add(self, _agent: Agent, answers: Sequence[Answer]) -> Added:
        """As `MessageStep.add`: in the order of the calls, whichever was ready first."""
        blocks = [block for answer in answers for block in self._by_call.pop(answer.call["id"], ())]
        return Added(blocks=tuple(blocks)) if blocks else NOTHING

    async def prepare(self, _agent: Agent) -> EndReason | None:
        """As `CallStep.prepare`: end the run if a hook wants that."""
        return None if self.stop is None else "hook"


def remark(event: HookEvent, text: str) -> bytes:
    """*text* of a hook as a block."""
    return text_block(render("hook_remark", event=event, text=text))
