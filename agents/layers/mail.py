"""Mail in the pipeline: a busy agent hears others at its next tool round, and an idle one is woken."""

from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape, quoteattr

import attrs
import trio

from coterie.agents.agent import NOTHING, Added, Agent, Answer, Pipeline
from coterie.agents.conversation import text_block
from coterie.agents.conversation.records import MailRecord
from coterie.agents.events import LayerFailed
from coterie.agents.lifecycle.answers import Expectation
from coterie.agents.lifecycle.shutdown import Shutdown
from coterie.agents.outcome import EndReason
from coterie.mailbox.contract import Delivery, Inbox
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import MailboxFailed
from coterie.mailbox.ids import MessageId
from coterie.mailbox.lifecycle import BODIES, TaskAssignment, TaskNotification
from coterie.mailbox.policy import NEVER_WAKES

AT_ONCE = 50
"""Messages that enter one turn; the rest waits for the next."""


@attrs.define(eq=False)
class DeliverMail:
    """Puts what other agents sent behind the results of a turn.

    Mail is acknowledged before the next model call, when the transcript has it; what a crash leaves unacknowledged is
    delivered again and known by its id. A request to end is heard as soon as it comes, and enters as other mail does.
    """

    _inbox: Inbox
    """A `Letterbox`, or one that has mail of this process alone: what carries authority is believed."""
    shutdown: Shutdown = attrs.field(factory=Shutdown, init=False)
    _delivered: list[MessageId] = attrs.field(factory=list, init=False)
    """In the transcript, or acted upon, and not yet acknowledged."""
    _waiting: list[Delivery] = attrs.field(factory=list, init=False)
    """Taken, and in no turn yet; never more than a mailbox may hold."""
    _expectations: list[Expectation] = attrs.field(factory=list, init=False)
    _is_listening: bool = attrs.field(default=False, init=False)
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def has_work(self) -> bool:
        """Whether something has come that is worth a turn."""
        return any(map(self._is_worth_a_turn, self._waiting))

    def add(self, agent: Agent, _answers: Sequence[Answer]) -> Added:
        """What has come, as one block; nothing, and an event, when the mailbox cannot be read."""
        try:
            self._take()
        except MailboxFailed as exc:
            agent.tell(LayerFailed(layer="mail", reason=str(exc)))
        deliveries, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
        return self._enter(deliveries) if deliveries else NOTHING

    async def prepare(self, agent: Agent) -> EndReason | None:
        """Acknowledge what the transcript has; what cannot be acknowledged now is tried again at the next call.

        Ends the run once the model has had the turn in which it could wrap up.
        """
        await self._acknowledge(agent)
        return self.shutdown.reason_to_end(agent.turn)

    async def receive(self) -> None:
        """Return when mail may have been taken, by this task or by another that waits. Cancellation loses nothing.

        Raises `MailboxFailed`.
        """
        if self._is_listening:  # an inbox has one reader, and a file mailbox one that waits
            await self._news.wait()
            return
        self._is_listening = True
        try:
            await self._inbox.wait()
            self._take()
        finally:
            self._is_listening = False
            self._news.set()
            self._news = trio.Event()

    async def wait_for_work(self) -> None:
        """Return when something has come that is worth a turn, or asks to end. Raises as `receive` does."""
        while not (self.has_work or self.shutdown.requests):
            await self.receive()

    async def wait_for_answer(self, expected: Expectation) -> Envelope:
        """The answer, which then enters no turn; cancelled, this leaves it to the conversation.

        Raises as `receive` does.
        """
        self._expectations.append(expected)
        is_answered = False
        try:
            # It may have come before it was known what it answers.
            self._waiting = [delivery for delivery in self._waiting if not expected.take(delivery)]
            while expected.answer is None:
                await self.receive()
            is_answered = True
        finally:
            self._expectations.remove(expected)
            if expected.answer is not None and not is_answered:
                self._waiting.append(expected.answer)
        self._delivered.append(expected.answer.envelope.id)
        return expected.answer.envelope

    async def finish(self, agent: Agent) -> None:
        """Acknowledge what was delivered, and the requests to end, told to the model or not: they were acted upon."""
        requests = self.shutdown.requests
        self._delivered += [d.envelope.id for d in self._waiting if d.envelope.id in requests]
        self._waiting = [d for d in self._waiting if d.envelope.id not in requests]
        await self._acknowledge(agent)

    def _take(self) -> None:
        for delivery in self._inbox.take_nowait(AT_ONCE):
            self.shutdown.hear(delivery.envelope)
            if not any(expected.take(delivery) for expected in self._expectations):
                self._waiting.append(delivery)

    async def _acknowledge(self, agent: Agent) -> None:
        ids = tuple(self._delivered)
        if not ids:
            return
        try:
            await self._inbox.acknowledge(ids)
        except MailboxFailed as exc:
            agent.tell(LayerFailed(layer="mail", reason=str(exc)))
        else:
            del self._delivered[: len(ids)]  # an answer may have been taken meanwhile

    def _is_worth_a_turn(self, delivery: Delivery) -> bool:
        envelope = delivery.envelope
        return envelope.kind not in NEVER_WAKES and envelope.id not in self.shutdown.requests

    def _enter(self, deliveries: Iterable[Delivery]) -> Added:
        envelopes = [delivery.envelope for delivery in deliveries]
        ids = [envelope.id for envelope in envelopes]
        self._delivered += ids
        self.shutdown.enter(ids)
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
    return f"<message{attributes}>\n{escape(_words(envelope))}\n</message>"


def _words(envelope: Envelope) -> str:
    """The body; what a program made of facts is put into words again."""
    try:
        match BODIES[envelope.kind].from_body(envelope.body) if envelope.kind in BODIES else None:
            case TaskAssignment() as task:
                return f"Task {task.task_id}: {task.subject}" if task.subject else f"Task {task.task_id}"
            case TaskNotification() as report:
                return _report(report)
    except ValueError:
        pass  # of another version, or forged: shown as it is
    return envelope.body


def _report(report: TaskNotification) -> str:
    calls = f"{report.tool_calls} tool calls" if report.tool_calls else "not one tool call, so check what it claims"
    facts = f"Status: {report.status}. {report.summary}\nIt took {report.turns} turns, {calls}, and ${report.cost_usd}."
    return f"{facts}\n\n{report.result}" if report.result else facts
