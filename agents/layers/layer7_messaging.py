"""Layer 7: delivery of messages from other agents to the conversation, and tracking of messages that need an answer."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import trio

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
from coterie.mailbox.message_bodies import ShutdownRequest, TaskAssignment
from coterie.mailbox.policy import NEVER_WAKES, has_authority

REPEATED_BYTES = 2_000
"""Maximum bytes of an unanswered message that a compaction (summary of older messages) shows again."""

_RESPONSES: Mapping[str, MessageKind] = {
    "plan_approval_request": "plan_approval_response",
    "permission_request": "permission_response",
}
"""Kind of message that answers a request, by kind of the request; other messages leave the request unanswered."""
_FROM_AGENTS = ("lead", "peer")
"""Kinds of senders whose text messages must be answered by a message. User and system need no such answer."""


def _needs_reply(envelope: Envelope) -> bool:
    """True if *envelope* needs an answer: a text from another agent, a request for approval, or a task assignment."""
    if envelope.kind == "message":
        return envelope.sender.kind in _FROM_AGENTS
    return envelope.kind == "task_assignment" or envelope.kind in _RESPONSES


def _open(envelope: Envelope) -> UnansweredMessage:
    task = None
    if envelope.kind == "task_assignment":
        # A body of another version has no task number: only a message answers it.
        with contextlib.suppress(ValueError):
            task = TaskAssignment.from_body(envelope.body).task_id
    return UnansweredMessage(
        id=envelope.id,
        sender=envelope.sender.name,
        session=envelope.sender.session,
        kind=envelope.kind,
        task=task,
        text=message_text(envelope, REPEATED_BYTES),
    )


def _is_answer(answer: ToolAnswer, mail: UnansweredMessage) -> bool:
    match answer.tool:
        case SendMessage() as tool:
            return _is_text_answer(tool, answer.call["input"], mail)
        case TaskClaim():
            # The result begins with the number of the task, even if the input has none.
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
            # The path does not name the session behind the socket.
            return mail.session != tool.sender.session
        case name:
            return (mail.session, mail.sender) == (tool.sender.session, name)


@attrs.define(eq=False)
class ShutdownState:
    """Shutdown requests that one agent process has received. None can be withdrawn; the earliest deadline counts."""

    requests: dict[MessageId, Envelope] = attrs.field(factory=dict, init=False)
    """All received shutdown requests by message id, oldest first; the agent must answer each one."""
    deadline: float = attrs.field(default=float("inf"), init=False)
    """Time on trio's clock at which the agent's running turn is cancelled; infinite without a shutdown request."""
    reason: str = attrs.field(default="", init=False)
    """Reason of the first shutdown request that gives a reason; empty if there is none."""
    is_known: bool = attrs.field(default=False, init=False)
    """True if a shutdown request was added to the conversation, so that the model sees it in its next call."""
    _last_turn: int | None = attrs.field(default=None, init=False)
    """Number of the turn in which the model can finish its work after it saw a shutdown request; None before that."""

    def handle(self, envelope: Envelope) -> None:
        """Store *envelope* and its deadline if it is a valid, authorised shutdown request; ignore any other message."""
        if envelope.kind != "shutdown_request" or not has_authority(envelope):
            return
        try:
            request = ShutdownRequest.from_body(envelope.body)
        except ValueError:
            return  # the model sees an unreadable request as text; it has no effect
        self.requests[envelope.id] = envelope
        self.reason = self.reason or request.reason
        self.deadline = min(self.deadline, trio.current_time() + request.deadline)

    def reason_to_end(self, turn: int) -> EndReason | None:
        """Return "shutdown" to end the run before *turn*, if the model had a turn since it saw a request, else None."""
        if not self.is_known:
            return None
        if self._last_turn is None:
            self._last_turn = turn
        return "shutdown" if turn > self._last_turn else None


BATCH = 50
"""Maximum number of received messages that are added to the conversation in one turn; others wait for the next turn."""


@attrs.define(eq=False)
class Messaging:
    """Pipeline step that adds received mail (of agents or the user) to the user message after a turn's tool calls.

    Mail is acknowledged to its mailbox before the next model call, after it was written to the transcript. After a
    crash, mail that was not acknowledged is delivered again and recognised by its id. A shutdown request takes effect
    as soon as it arrives, and is also added to the conversation.
    """

    _inbox: Inbox
    """Inbox, such as a `MergedInbox`, that drops shutdown requests of other processes: those it returns are obeyed."""
    shutdown: ShutdownState = attrs.field(factory=ShutdownState, init=False)
    _delivered: list[MessageId] = attrs.field(factory=list, init=False)
    """Ids of messages that are in the transcript or were acted upon, but are not acknowledged to the mailbox yet."""
    _waiting: list[Delivery] = attrs.field(factory=list, init=False)
    """Messages taken from the inbox that are not in the conversation yet; at most as many as a mailbox may contain."""
    _expected: dict[MessageId, Delivery | None] = attrs.field(factory=dict, init=False)
    """Reports of subagents that tool calls wait for in `wait_for_report`, by message id; None until one arrives."""
    reports: set[MessageId] = attrs.field(factory=set, init=False)
    """Message ids of the subagents' task reports that were added to the conversation as mail."""
    _answered: list[MessageId] = attrs.field(factory=list, init=False)
    """Ids of task reports that a waiting tool call received; the next message records them as delivered."""
    _is_listening: bool = attrs.field(default=False, init=False)
    _received: trio.Event = attrs.field(factory=trio.Event, init=False)

    @property
    def has_work(self) -> bool:
        """True if a received message is worth a model call; shutdown requests and idle notices alone are not."""
        waiting = (delivery.envelope for delivery in self._waiting)
        return any(mail.kind not in NEVER_WAKES and mail.id not in self.shutdown.requests for mail in waiting)

    @property
    def unacknowledged(self) -> list[MessageId]:
        """Ids of messages that were given to the model or acted upon, but are not acknowledged to the mailbox yet."""
        return list(self._delivered)

    def poll(self) -> bool:
        """Take arrived messages from the inbox; return True if one is worth a model call. Raises `MailboxFailed`."""
        known = -1
        while known != len(self._waiting):
            known = len(self._waiting)
            self._receive_new()
        return self.has_work

    def add_blocks(self, agent: Agent, answers: Sequence[ToolAnswer]) -> AddedBlocks:
        """Return received mail as one text block for the next user message; an unreadable mailbox causes an event.

        The caller must write the block and its record to the transcript before the next `before_call`, which
        acknowledges the mail. The record also lists earlier messages that the tool calls in *answers* have answered.
        """
        try:
            self._receive_new()
        except MailboxFailed as exc:
            agent.report_failure("mail", exc)
        envelopes = [delivery.envelope for delivery in self._waiting[:BATCH]]
        self._waiting = self._waiting[BATCH:]
        done = [answer for answer in answers if not answer.result.is_error]  # failed calls answer nothing
        open_mail = agent.open_mail if done else {}
        answered = [id_ for id_, mail in open_mail.items() if any(_is_answer(answer, mail) for answer in done)]
        ids = [*self._answered, *(envelope.id for envelope in envelopes)]
        if not ids and not answered:
            return NOTHING
        self._answered = []
        self.reports |= {envelope.id for envelope in envelopes if envelope.kind == "task_notification"}
        self._delivered += ids
        self.shutdown.is_known |= any(id_ in self.shutdown.requests for id_ in ids)
        texts = [envelope.body for envelope in envelopes if envelope.sender.kind == "human"]
        unanswered = [_open(envelope) for envelope in envelopes if _needs_reply(envelope)]
        record = MailRecord(ids=list(ids), open=unanswered, answered=answered)
        records: list[Addition] = [record, *([UserTextRecord(texts=texts)] if texts else [])]
        return AddedBlocks(blocks=(mail_block(envelopes),) if envelopes else (), records=tuple(records))

    def deliver(self, agent: Agent) -> None:
        """Append received mail to the conversation of *agent* as a separate user message; without mail, do nothing."""
        added = self.add_blocks(agent, ())
        if added.blocks:
            agent.append_message("user", added.blocks, *added.records)

    async def before_call(self, agent: Agent) -> EndReason | None:
        """Acknowledge the mail in the transcript, so that it is not delivered again; a failure is retried later.

        Returns "shutdown", to end the run, once the model had one turn to finish its work after a shutdown request.
        """
        await self._acknowledge(agent)
        return self.shutdown.reason_to_end(agent.turn)

    async def receive(self) -> None:
        """Wait for mail and take it from the inbox, or wait until another task, which already waits, has done so.

        Cancellation loses no mail. May return without new mail. Raises `MailboxFailed`.
        """
        if self._is_listening:  # an inbox allows only one waiting reader
            await self._received.wait()
            return
        self._is_listening = True
        try:
            await self._inbox.wait()
            self._receive_new()
        finally:
            self._is_listening = False
            self._received.set()
            self._received = trio.Event()

    async def wait_for_work(self) -> None:
        """Wait for a message that is worth a model call, or for a shutdown request. Raises `MailboxFailed`."""
        while not (self.has_work or self.shutdown.requests):
            await self.receive()

    async def wait_for_report(self, id_: MessageId) -> Envelope:
        """Wait for the task report (a subagent's result) with the message id *id_*; return it for a tool result.

        The report is not added to the conversation as mail, but the next message records its id. If this wait is
        cancelled, the report is delivered like other mail. Raises `MailboxFailed`.
        """
        self._expected[id_] = None
        is_answered = False
        try:
            # The report may have arrived before this call.
            self._waiting = [delivery for delivery in self._waiting if not self._is_expected(delivery)]
            while (report := self._expected[id_]) is None:
                await self.receive()
            is_answered = True
        finally:
            received = self._expected.pop(id_)
            if received is not None and not is_answered:
                self._waiting.append(received)
        self._answered.append(id_)
        return report.envelope

    def reason_to_end(self) -> str:
        """Return the reason that a shutdown request gives, even one that has just arrived; empty if there is none."""
        with contextlib.suppress(MailboxFailed):  # a reason that cannot be read is optional here
            self._receive_new()
        return self.shutdown.reason

    async def acknowledge_all(self, agent: Agent) -> None:
        """Acknowledge all mail in the conversation, and all shutdown requests, even if the model has not seen them."""
        requests = self.shutdown.requests
        self._delivered += [d.envelope.id for d in self._waiting if d.envelope.id in requests]
        self._waiting = [d for d in self._waiting if d.envelope.id not in requests]
        await self._acknowledge(agent)

    def _receive_new(self) -> None:
        for delivery in self._inbox.take_nowait(BATCH):
            self.shutdown.handle(delivery.envelope)
            if not self._is_expected(delivery):
                self._waiting.append(delivery)

    def _is_expected(self, delivery: Delivery) -> bool:
        """Store *delivery* for `wait_for_report` if it is a task report expected there; return True if so."""
        envelope = delivery.envelope
        if envelope.kind != "task_notification" or self._expected.get(envelope.id, delivery) is not None:
            return False
        self._expected[envelope.id] = delivery
        return True

    async def _acknowledge(self, agent: Agent) -> None:
        ids = tuple(self._delivered)
        if not ids:
            return
        try:
            await self._inbox.acknowledge(ids)
        except MailboxFailed as exc:
            agent.report_failure("mail", exc)
        else:
            del self._delivered[: len(ids)]  # more ids may have been appended during the call
