"""Mail in the pipeline: a busy agent hears others at its next tool round, and an idle one is woken."""

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape, quoteattr

import attrs

from coterie.agents.agent import NOTHING, Added, Agent, Answer, Pipeline
from coterie.agents.conversation import text_block
from coterie.agents.conversation.records import MailRecord
from coterie.agents.events import LayerFailed
from coterie.mailbox.contract import Delivery, Inbox
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import MailboxFailed
from coterie.mailbox.ids import MessageId
from coterie.mailbox.policy import NEVER_WAKES

AT_ONCE = 50
"""Messages that enter one turn; the rest waits for the next."""


@attrs.define(eq=False)
class DeliverMail:
    """Puts what other agents sent behind the results of a turn.

    Mail is acknowledged before the next model call, when the transcript has it; what a crash leaves unacknowledged is
    delivered again and known by its id.
    """

    _inbox: Inbox
    _delivered: list[MessageId] = attrs.field(factory=list, init=False)
    """In the transcript, and not yet acknowledged."""
    _waiting: list[Delivery] = attrs.field(factory=list, init=False)
    """Taken while idle, and not worth a turn."""

    def add(self, agent: Agent, _answers: Sequence[Answer]) -> Added:
        """All that has come, as one block; nothing, and an event, when the mailbox cannot be read."""
        try:
            deliveries = [*self._waiting, *self._inbox.take_nowait(AT_ONCE)]
        except MailboxFailed as exc:
            agent.tell(LayerFailed(layer="mail", reason=str(exc)))
            return NOTHING
        self._waiting = []
        return self._enter(deliveries) if deliveries else NOTHING

    async def prepare(self, agent: Agent) -> None:
        """Acknowledge what the transcript has; what cannot be acknowledged now is tried again at the next call."""
        if not self._delivered:
            return
        try:
            await self._inbox.acknowledge(self._delivered)
        except MailboxFailed as exc:
            agent.tell(LayerFailed(layer="mail", reason=str(exc)))
        else:
            self._delivered = []

    async def wait_for_work(self) -> None:
        """Return when something has come that is worth a turn. Cancellation loses nothing."""
        while all(delivery.envelope.kind in NEVER_WAKES for delivery in self._waiting):
            await self._inbox.wait()
            self._waiting += self._inbox.take_nowait(AT_ONCE)

    def _enter(self, deliveries: Iterable[Delivery]) -> Added:
        envelopes = [delivery.envelope for delivery in deliveries]
        ids = [envelope.id for envelope in envelopes]
        self._delivered += ids
        return Added(blocks=(mail_block(envelopes),), records=(MailRecord(ids=list(ids)),))


def with_mail(pipeline: Pipeline, mail: DeliverMail) -> Pipeline:
    """*pipeline* of an agent that gets mail: read behind the results, acknowledged before anything else."""
    return attrs.evolve(pipeline, messages=(mail, *pipeline.messages), calls=(mail, *pipeline.calls))


def mail_block(envelopes: Iterable[Envelope]) -> bytes:
    """Messages as one block of text; no body can end its envelope, or begin another."""
    return text_block("\n".join(map(_shown, envelopes)))


def _shown(envelope: Envelope) -> str:
    facts = {
        "from": envelope.sender.name,
        "sender": envelope.sender.kind,
        "kind": envelope.kind,
        "id": envelope.id,
        "reply-to": envelope.in_reply_to,
        "session": envelope.sender.session,
    }
    attributes = "".join(f" {name}={quoteattr(value)}" for name, value in facts.items() if value is not None)
    return f"<message{attributes}>\n{escape(envelope.body)}\n</message>"
