"""What carries authority, on its way to the root: said on the agent's own socket, so that it is known who says it."""

from collections.abc import Callable

import attrs

from coterie.agents.control.approval_words import DecidePlan, PlanDecided
from coterie.agents.control.questions import Questions
from coterie.agents.control.spawner import RemoteSpawner
from coterie.agents.control.word import Word
from coterie.agents.spawning import SpawnRefused
from coterie.mailbox.contract import Receipt
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import NotAllowed
from coterie.mailbox.lifecycle import BODIES, PlanApprovalResponse, ShutdownRequest


@attrs.define(eq=False)
class RemoteAuthority:
    """An `AuthorityPort`. Whoever reads the line passes the root's answers to `hear`."""

    _decisions: Questions[PlanDecided]
    _spawner: RemoteSpawner

    @classmethod
    def over(cls, say: Callable[[Word], None], spawner: RemoteSpawner) -> "RemoteAuthority":
        """One that speaks by *say*; who starts agents by *spawner* asks them to end by it."""
        return cls(Questions(say), spawner)

    async def send(self, envelope: Envelope) -> Receipt:
        """As `AuthorityPort.send`. Raises `ControlLost` too."""
        match BODIES[envelope.kind].from_body(envelope.body):
            case PlanApprovalResponse() as response:
                refusal = await self._decide(envelope, response)
            case ShutdownRequest():
                refusal = await self._ask_to_end(envelope)
            case _:
                refusal = "the root takes no such message"
        if refusal is not None:
            sender, recipient = envelope.sender.name, envelope.recipient.name
            raise NotAllowed(sender=sender, recipient=recipient, kind=envelope.kind, reason=refusal)
        return Receipt(id=envelope.id, recipient=envelope.recipient.name, transport="control", stored=envelope.created)

    async def _decide(self, envelope: Envelope, response: PlanApprovalResponse) -> str | None:
        """Why the answer does not count; None if it does."""
        assert envelope.in_reply_to is not None, "checked before it is sent"
        request, asker = envelope.in_reply_to, envelope.recipient.name

        def word(call: int) -> DecidePlan:
            return DecidePlan(call=call, id=request, approve=response.approve, feedback=response.feedback, asker=asker)

        return (await self._decisions.ask(word)).refusal

    async def _ask_to_end(self, envelope: Envelope) -> str | None:
        try:
            await self._spawner.ask_to_end(envelope)
        except SpawnRefused as exc:
            return exc.reason
        return None

    def hear(self, answer: PlanDecided) -> None:
        """Let whoever waits go on."""
        self._decisions.hear(answer)
