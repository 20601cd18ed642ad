"""Layer 7: messages of other agents enter the conversation, and those that need a reply are tracked."""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import trio

from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.layers.layer7_team_protocol import PendingReport, ShutdownState
from coterie.agents.layers.message_blocks import mail_block, message_text
from coterie.agents.loop.agent import NOTHING, AddedBlocks, Agent, ToolAnswer
from coterie.agents.loop.conversation.transcript_records import Addition, MailRecord, UnansweredMessage, UserTextRecord
from coterie.agents.loop.run_result import EndReason
from coterie.agents.tools.team.send_message import SendMessage
from coterie.agents.tools.team.task_tools import TaskClaim
from coterie.mailbox.address import Everyone, OtherSession, Socket, parse_address
from coterie.mailbox.contract import Delivery, Inbox
from coterie.mailbox.envelope import Envelope, MessageId, MessageKind
from coterie.mailbox.errors import MailboxFailed
from coterie.mailbox.message_bodies import TaskAssignment
from coterie.mailbox.policy import NEVER_WAKES

REPEATED_BYTES = 2_000
"""Bytes of a message that are told again after a compaction."""

_RESPONSES: Mapping[str, MessageKind] = {
    "plan_approval_request": "plan_approval_response",
    "permission_request": "permission_response",
}
"""Kinds that one kind alone answers."""
_FROM_AGENTS = ("lead", "peer")
"""The human is answered by what the model says, and the system wants no answer."""


def messages_needing_reply(envelopes: Iterable[Envelope]) -> list[UnansweredMessage]:
    """Those that want an answer: words of other agents, requests, and tasks to take on."""
    return [_open(envelope) for envelope in envelopes if _wants_answer(envelope)]


def answered_ids(answers: Iterable[ToolAnswer], open_mail: Mapping[str, UnansweredMessage]) -> list[str]:
    """The ids of what the calls with these *answers* have answered; a call that failed answers nothing."""
    done = [answer for answer in answers if not answer.result.is_error]
    return [id_ for id_, mail in open_mail.items() if any(_is_answer(answer, mail) for answer in done)]


def _wants_answer(envelope: Envelope) -> bool:
    if envelope.kind == "message":
        return envelope.sender.kind in _FROM_AGENTS
    return envelope.kind == "task_assignment" or envelope.kind in _RESPONSES


def _open(envelope: Envelope) -> UnansweredMessage:
    return UnansweredMessage(
        id=envelope.id,
        sender=envelope.sender.name,
        session=envelope.sender.session,
        kind=envelope.kind,
        task=_task_of(envelope),
        text=message_text(envelope, REPEATED_BYTES),
    )


def _task_of(envelope: Envelope) -> int | None:
    try:
        return TaskAssignment.from_body(envelope.body).task_id if envelope.kind == "task_assignment" else None
    except ValueError:
        return None  # of another version: to be answered in words


def _is_answer(answer: ToolAnswer, mail: UnansweredMessage) -> bool:
    match answer.tool:
        case SendMessage() as tool:
            return _is_text_answer(tool, answer.call["input"], mail)
        case TaskClaim():
            # Its result begins with the number, also where the call named none.
            return mail.task is not None and answer.result.text.startswith(f"{mail.task} ")
    return False


def _is_text_answer(tool: SendMessage, arguments: dict[str, Any], mail: UnansweredMessage) -> bool:
    message = arguments["message"]
    if (response := _RESPONSES.get(mail.kind)) is not None:
        return isinstance(message, dict) and (message["type"], message.get("request_id")) == (response, mail.id)
    match parse_address(arguments["to"]):
        case Everyone():
            return mail.session == tool.sender.session
        case OtherSession(session):
            return mail.session == session
        case Socket():
            # Whose socket it is the path does not say.
            return mail.session != tool.sender.session
        case name:
            return (mail.session, mail.sender) == (tool.sender.session, name)


AT_ONCE = 50
"""Messages that enter one turn; the rest waits for the next."""


@attrs.define(eq=False)
class Messaging:
    """Puts what other agents sent behind the results of a turn.

    Mail is acknowledged before the next model call, when the transcript has it; what a crash leaves unacknowledged is
    delivered again and known by its id. A request to end is heard as soon as it comes, and enters as other mail does.
    """

    _inbox: Inbox
    """A `MergedInbox`, or one that has mail of this process alone: what carries authority is believed."""
    shutdown: ShutdownState = attrs.field(factory=ShutdownState, init=False)
    _delivered: list[MessageId] = attrs.field(factory=list, init=False)
    """In the transcript, or acted upon, and not yet acknowledged."""
    _waiting: list[Delivery] = attrs.field(factory=list, init=False)
    """Taken, and in no turn yet; never more than a mailbox may hold."""
    _expectations: list[PendingReport] = attrs.field(factory=list, init=False)
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

    def poll(self) -> bool:
        """Take what has come by now, and say whether something is worth a turn. Raises `MailboxFailed`."""
        known = -1
        while known != len(self._waiting):
            known = len(self._waiting)
            self._receive_new()
        return self.has_work

    def add_blocks(self, agent: Agent, answers: Sequence[ToolAnswer]) -> AddedBlocks:
        """What has come, as one block; nothing, and an event, when the mailbox cannot be read.

        It must be recorded before the next `prepare`, which acknowledges it. Mail that *answers* have answered is
        recorded with it.
        """
        try:
            self._receive_new()
        except MailboxFailed as exc:
            agent.emit(LayerFailed(layer="mail", reason=str(exc)))
        deliveries, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
        answered = answered_ids(answers, agent.open_mail) if answers else []
        return self._enter(deliveries, answered)

    async def before_call(self, agent: Agent) -> EndReason | None:
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
            self._receive_new()
        finally:
            self._is_listening = False
            self._news.set()
            self._news = trio.Event()

    async def wait_for_work(self) -> None:
        """Return when something has come that is worth a turn, or asks to end. Raises as `receive` does."""
        while not (self.has_work or self.shutdown.requests):
            await self.receive()

    async def wait_for_report(self, id_: MessageId) -> Envelope:
        """Wait for the report with this id, which then enters no turn; after a cancellation it is mail as any other.

        The caller adds its text to the transcript with the next results. Raises as `receive` does.
        """
        expected = PendingReport(id_)
        self._expectations.append(expected)
        is_answered = False
        try:
            # The report may have arrived before this call.
            self._waiting = [delivery for delivery in self._waiting if not expected.accept(delivery)]
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
            self._receive_new()
        return self.shutdown.reason

    async def acknowledge_all(self, agent: Agent) -> None:
        """Acknowledge what was delivered, and the requests to end, told to the model or not: they were acted upon."""
        requests = self.shutdown.requests
        self._delivered += [d.envelope.id for d in self._waiting if d.envelope.id in requests]
        self._waiting = [d for d in self._waiting if d.envelope.id not in requests]
        await self._acknowledge(agent)

    def _receive_new(self) -> None:
        for delivery in self._inbox.take_nowait(AT_ONCE):
            self.shutdown.handle(delivery.envelope)
            if not any(expected.accept(delivery) for expected in self._expectations):
                self._waiting.append(delivery)

    async def _acknowledge(self, agent: Agent) -> None:
        ids = tuple(self._delivered)
        if not ids:
            return
        try:
            await self._inbox.acknowledge(ids)
        except MailboxFailed as exc:
            agent.emit(LayerFailed(layer="mail", reason=str(exc)))
        else:
            del self._delivered[: len(ids)]  # an answer may have been taken meanwhile

    def _is_worth_a_turn(self, delivery: Delivery) -> bool:
        envelope = delivery.envelope
        return envelope.kind not in NEVER_WAKES and envelope.id not in self.shutdown.requests

    def _enter(self, deliveries: Iterable[Delivery], answered: list[str]) -> AddedBlocks:
        envelopes = [delivery.envelope for delivery in deliveries]
        ids = [*self._answered, *(envelope.id for envelope in envelopes)]
        if not ids and not answered:
            return NOTHING
        self._answered = []
        self.reports |= {envelope.id for envelope in envelopes if envelope.kind == "task_notification"}
        self._delivered += ids
        self.shutdown.mark_delivered(ids)
        words = [envelope.body for envelope in envelopes if envelope.sender.kind == "human"]
        record = MailRecord(ids=list(ids), open=messages_needing_reply(envelopes), answered=answered)
        records: list[Addition] = [record, *([UserTextRecord(texts=words)] if words else [])]
        return AddedBlocks(blocks=(mail_block(envelopes),) if envelopes else (), records=tuple(records))
