"""Mail in the pipeline: a busy agent hears others at its next tool round, and an idle one is woken."""

import contextlib
from collections.abc import Iterable, Sequence

import attrs
import trio

from coterie.agents.agent import NOTHING, Added, Agent, Answer, Pipeline
from coterie.agents.conversation.records import Addition, MailRecord, WordsRecord
from coterie.agents.events import LayerFailed
from coterie.agents.layers.mail_words import mail_block
from coterie.agents.layers.open_mail import answered_by, to_be_answered
from coterie.agents.lifecycle.answers import Expected, ExpectedReport
from coterie.agents.lifecycle.shutdown import Shutdown
from coterie.agents.outcome import EndReason
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
    delivered again and known by its id. A request to end is heard as soon as it comes, and enters as other mail does.
    """

    _inbox: Inbox
    """A `Letterbox`, or one that has mail of this process alone: what carries authority is believed."""
    shutdown: Shutdown = attrs.field(factory=Shutdown, init=False)
    _delivered: list[MessageId] = attrs.field(factory=list, init=False)
    """In the transcript, or acted upon, and not yet acknowledged."""
    _waiting: list[Delivery] = attrs.field(factory=list, init=False)
    """Taken, and in no turn yet; never more than a mailbox may hold."""
    _expectations: list[Expected] = attrs.field(factory=list, init=False)
    reports: set[MessageId] = attrs.field(factory=set, init=False)
    """What came of tasks, as far as the model was told."""
    _answered: list[MessageId] = attrs.field(factory=list, init=False)
    """Given to who waited for them, and not yet in the transcript."""
    _is_listening: bool = attrs.field(default=False, init=False)
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def has_work(self) -> bool:
        """Whether something has come that is worth a turn."""
        return any(map(self._is_worth_a_turn, self._waiting))

    @property
    def unacknowledged(self) -> list[MessageId]:
        """Ids of what is in the transcript, or is about to be by what `add` gave, and is not acknowledged yet."""
        return list(self._delivered)

    def look(self) -> bool:
        """Take what has come by now, and say whether something is worth a turn. Raises `MailboxFailed`."""
        known = -1
        while known != len(self._waiting):
            known = len(self._waiting)
            self._take()
        return self.has_work

    def add(self, agent: Agent, answers: Sequence[Answer]) -> Added:
        """What has come, as one block; nothing, and an event, when the mailbox cannot be read.

        It must be recorded before the next `prepare`, which acknowledges it. Mail that *answers* have answered is
        recorded with it.
        """
        try:
            self._take()
        except MailboxFailed as exc:
            agent.tell(LayerFailed(layer="mail", reason=str(exc)))
        deliveries, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
        answered = answered_by(answers, agent.open_mail) if answers else []
        return self._enter(deliveries, answered)

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

    async def wait_for_report(self, id_: MessageId) -> Envelope:
        """The report with that id, as `wait_for_answer`."""
        return await self.wait_for_answer(ExpectedReport(id_))

    async def wait_for_answer(self, expected: Expected) -> Envelope:
        """The answer, which then enters no turn by itself; cancelled, this leaves it to the conversation.

        It is in the transcript with the next results, in the words of whoever waited. Raises as `receive` does.
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
        self._answered.append(expected.answer.envelope.id)
        return expected.answer.envelope

    def reason_to_end(self) -> str:
        """What was said by who has asked the agent to end, if only a moment ago; empty if nobody gave a reason."""
        with contextlib.suppress(MailboxFailed):  # what was not heard is no reason
            self._take()
        return self.shutdown.reason

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

    def _enter(self, deliveries: Iterable[Delivery], answered: list[str]) -> Added:
        envelopes = [delivery.envelope for delivery in deliveries]
        ids = [*self._answered, *(envelope.id for envelope in envelopes)]
        if not ids and not answered:
            return NOTHING
        self._answered = []
        self.reports |= {envelope.id for envelope in envelopes if envelope.kind == "task_notification"}
        self._delivered += ids
        self.shutdown.enter(ids)
        words = [envelope.body for envelope in envelopes if envelope.sender.kind == "human"]
        record = MailRecord(ids=list(ids), open=to_be_answered(envelopes), answered=answered)
        records: list[Addition] = [record, *([WordsRecord(texts=words)] if words else [])]
        return Added(blocks=(mail_block(envelopes),) if envelopes else (), records=tuple(records))


def with_mail(pipeline: Pipeline, mail: DeliverMail) -> Pipeline:
    """*pipeline* of an agent that gets mail: read behind the results, acknowledged before anything else."""
    return attrs.evolve(pipeline, messages=(mail, *pipeline.messages), calls=(mail, *pipeline.calls))
