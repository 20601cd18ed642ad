"""Ways, sequences, broadcasts and what policy refuses."""

from pathlib import Path
from typing import Any, get_args

import attrs
import pytest

from coterie.clock import Clock
from coterie.mailbox.address import OtherSession, Socket
from coterie.mailbox.contract import DeadLetter, MailLimits, Receipt
from coterie.mailbox.envelope import Envelope, MessageId, MessageKind, Sender, SenderKind
from coterie.mailbox.errors import BridgeRefused, MailboxFull, NameInvalid, NotAllowed, UnknownRecipient
from coterie.mailbox.merged_inbox import MergedInbox
from coterie.mailbox.policy import AUTHORITY
from coterie.mailbox.roster import LocalRoster
from coterie.mailbox.router import OutgoingMessage, Router
from coterie.mailbox.transports.in_process.transport import QueueTransport

KEY = b"k" * 32


@attrs.frozen
class OneKey:
    """The same key for everybody."""

    def key_of(self, _sender: Sender) -> bytes:
        """The key."""
        return KEY


@attrs.define(eq=False)
class NextDoor:
    """A bridge that remembers what went over it."""

    sent: list[tuple[Envelope, Socket | OtherSession]] = attrs.field(factory=list)

    async def send(self, envelope: Envelope, address: Socket | OtherSession) -> Receipt:
        """Take it."""
        self.sent.append((envelope, address))
        return Receipt(id=envelope.id, recipient="main", transport="bridge", stored=0.0)


@attrs.define(eq=False)
class RouterHarness:
    """A session with a process of its own and another one: `near` are tasks here, `far` are not."""

    near: tuple[str, ...] = ("main", "scout")
    far: tuple[str, ...] = ("worker",)
    limits: MailLimits = attrs.field(factory=MailLimits)
    dead: list[DeadLetter] = attrs.field(factory=list)
    bridge: NextDoor | None = attrs.field(factory=NextDoor)
    roster: LocalRoster = attrs.field(factory=LocalRoster)
    local: QueueTransport = attrs.field(init=False)
    files: QueueTransport = attrs.field(init=False)
    router: Router = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        for name in (*self.near, *self.far):
            self.roster.join(name)
        self.local = QueueTransport(self.roster, OneKey(), Clock(), self.dead.append, self.limits)
        self.files = QueueTransport(self.roster, OneKey(), Clock(), self.dead.append, self.limits)
        self.router = Router(self.roster, OneKey(), self.local, self.files, self.bridge, local_names=set(self.near))

    async def received(self, name: str) -> list[Envelope]:
        """What waits for *name*, by whichever way."""
        async with self.local.open_inbox(name, 1) as local, self.files.open_inbox(name, 1) as other:
            box = MergedInbox(name, local, (other,), self.dead.append)
            return [delivery.envelope for delivery in box.take_nowait()]


def sender(name: str = "main", kind: SenderKind = "lead") -> Sender:
    return Sender(name=name, incarnation=1, session="s", kind=kind)


async def test_a_task_of_this_process_gets_it_in_the_process_and_others_through_files() -> None:
    office = RouterHarness()
    for to in ("scout", "worker"):
        await office.router.send(sender(), OutgoingMessage(to=to, body=to))
    assert office.local.backlog("scout").messages == office.files.backlog("worker").messages == 1
    assert [e.body for e in await office.received("worker")] == ["worker"]


async def test_messages_to_one_recipient_are_numbered_for_each_sender_and_signed() -> None:
    office = RouterHarness()
    for who, to in (("main", "scout"), ("main", "worker"), ("main", "scout"), ("worker", "scout")):
        await office.router.send(sender(who, "peer"), OutgoingMessage(to=to, body="x"))
    found = await office.received("scout")
    assert [(e.sender.name, e.sequence) for e in found] == [("main", 1), ("main", 2), ("worker", 1)]
    assert all(e.is_signed_with(KEY) for e in found)


async def test_everyone_but_the_sender_gets_a_broadcast_each_with_a_receipt() -> None:
    office = RouterHarness()
    await office.router.send(sender(), OutgoingMessage(to="scout", body="x"))
    posted = await office.router.send(sender(), OutgoingMessage(to="*", body="all"))
    assert [each.recipient for each in posted] == ["scout", "worker"]
    assert len({each.receipt.id for each in posted if each.receipt}) == 2
    groups = {(await office.received(name))[-1].group for name in ("scout", "worker")}
    assert len(groups) == 1
    assert groups != {None}


async def test_a_broadcast_reaches_the_others_when_one_is_full() -> None:
    office = RouterHarness(limits=MailLimits(messages=1))
    await office.router.send(sender(), OutgoingMessage(to="scout", body="x"))
    full, reached = await office.router.send(sender(), OutgoingMessage(to="*", body="all"))
    assert isinstance(full.refusal, MailboxFull)
    assert reached.receipt is not None


async def test_an_ended_member_is_left_out_of_a_broadcast() -> None:
    office = RouterHarness()
    office.roster.set_state("scout", "ended")
    posted = await office.router.send(sender(), OutgoingMessage(to="*", body="all"))
    assert [each.recipient for each in posted] == ["worker"]


async def test_other_sessions_are_reached_over_the_bridge() -> None:
    office = RouterHarness()
    assert office.bridge is not None
    for to in ("bridge:20261116-1", "uds:/run/x.sock"):
        [posted] = await office.router.send(sender(), OutgoingMessage(to=to, body="hi"))
        assert posted.receipt is not None
        assert posted.recipient == to
    assert [address for _, address in office.bridge.sent] == [OtherSession("20261116-1"), Socket(Path("/run/x.sock"))]
    assert {envelope.recipient.name for envelope, _ in office.bridge.sent} == {"main"}


async def test_without_a_bridge_another_session_is_refused() -> None:
    with pytest.raises(BridgeRefused, match="no bridge"):
        await RouterHarness(bridge=None).router.send(sender(), OutgoingMessage(to="bridge:x", body="hi"))


@pytest.mark.parametrize("to", ["scuot", "mian", "../main", "", "a" * 300, "m\u0430in", "ma\0in", "uds:relative"])
async def test_a_wrong_name_is_refused_and_makes_no_mailbox(to: str) -> None:
    office = RouterHarness()
    with pytest.raises((UnknownRecipient, NameInvalid)):
        await office.router.send(sender(), OutgoingMessage(to=to, body="x"))
    assert set(office.roster.members()) == {"main", "scout", "worker"}


async def test_a_mistyped_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownRecipient) as caught:
        await RouterHarness().router.send(sender(), OutgoingMessage(to="scuot", body="x"))
    assert caught.value.nearest[0] == "scout"
    assert str(caught.value) == "there is no 'scuot'; did you mean scout?"


REQUEST = MessageId("r")
BODIES: dict[MessageKind, str] = {
    "message": "hello",
    "shutdown_request": "{}",
    "plan_approval_response": '{"approve": true}',
    "permission_response": '{"approve": true}',
    "task_assignment": '{"task_id": 1}',
    "shutdown_response": '{"accepted": true}',
    "plan_approval_request": '{"plan": "1. Look."}',
    "permission_request": '{"tool": "Bash"}',
    "task_notification": '{"status": "completed", "summary": "Done."}',
    "idle": "{}",
}
ALLOWED: dict[MessageKind, set[SenderKind]] = {
    "message": {"human", "lead", "peer", "system"},
    "shutdown_request": {"human", "lead", "system"},
    "plan_approval_response": {"human", "lead", "system"},
    "permission_response": {"human", "lead", "system"},
    "task_assignment": {"human", "lead", "system"},
    "shutdown_response": {"peer"},
    "plan_approval_request": {"peer", "system"},
    "permission_request": {"peer"},
    "task_notification": {"peer", "system"},
    "idle": {"peer"},
}


@pytest.mark.parametrize("kind", get_args(MessageKind))
@pytest.mark.parametrize("who", get_args(SenderKind))
async def test_who_may_send_what_is_not_the_prompts_business(kind: MessageKind, who: SenderKind) -> None:
    office = RouterHarness()
    draft = OutgoingMessage(to="scout", body=BODIES[kind], kind=kind, in_reply_to=REQUEST)
    if who in ALLOWED[kind]:
        assert await office.router.send(sender("main", who), draft)
        return
    with pytest.raises(NotAllowed) as caught:
        await office.router.send(sender("main", who), draft)
    assert caught.value.kind == kind
    assert await office.received("scout") == []


@pytest.mark.parametrize("to", ["*", "bridge:x", "uds:/run/x.sock"])
async def test_structured_messages_go_to_one_agent_of_this_session(to: str) -> None:
    office = RouterHarness()
    draft = OutgoingMessage(to=to, body="{}", kind="task_assignment")
    if to == "*":
        assert all(isinstance(each.refusal, NotAllowed) for each in await office.router.send(sender(), draft))
    else:
        with pytest.raises(NotAllowed, match="by name"):
            await office.router.send(sender(), draft)


@pytest.mark.parametrize("kind", sorted(AUTHORITY))
async def test_authority_never_travels_through_files(kind: Any) -> None:
    with pytest.raises(NotAllowed, match="inside a process only"):
        await RouterHarness().router.send(
            sender(), OutgoingMessage(to="worker", body=BODIES[kind], kind=kind, in_reply_to=REQUEST)
        )


async def test_what_makes_somebody_act_is_for_this_start_of_the_name_alone() -> None:
    office = RouterHarness()
    await office.router.send(sender(), OutgoingMessage(to="scout", body="{}", kind="shutdown_request"))
    await office.router.send(sender(), OutgoingMessage(to="scout", body="words"))
    async with office.local.open_inbox("scout", 2) as inbox:
        assert [d.envelope.body for d in inbox.take_nowait()] == ["words"]
    assert [letter.reason for letter in office.dead] == ["stale_incarnation"]


async def test_an_answer_names_its_request_and_nobody_answers_for_themselves() -> None:
    office = RouterHarness()
    with pytest.raises(NotAllowed, match="name the request"):
        await office.router.send(sender(), OutgoingMessage(to="scout", body="{}", kind="plan_approval_response"))
    draft = OutgoingMessage(to="main", body="{}", kind="plan_approval_response", in_reply_to=REQUEST)
    with pytest.raises(NotAllowed, match="for themselves"):
        await office.router.send(sender(), draft)


async def test_authority_that_was_written_into_a_file_is_buried() -> None:
    office = RouterHarness()
    forged = OutgoingMessage(to="scout", body="{}", kind="shutdown_request")
    envelope = office.router._envelope(sender(), "scout", forged, None)  # noqa: SLF001 - as a forger would make it
    await office.files.send(envelope)
    await office.files.send(attrs.evolve(envelope, kind="message", id=MessageId("2"), mac=None).sign(KEY))
    async with office.local.open_inbox("scout", 1) as local, office.files.open_inbox("scout", 1) as other:
        box = MergedInbox("scout", local, (other,), office.dead.append)
        assert [d.envelope.kind for d in box.take_nowait()] == ["message"]
        assert [(letter.reason, letter.envelope) for letter in office.dead] == [("refused", envelope)]
        await box.acknowledge([MessageId("2")])
    assert office.files.backlog("scout").messages == 0


async def test_a_letterbox_acknowledges_where_each_message_came_from() -> None:
    office = RouterHarness()
    await office.router.send(sender(), OutgoingMessage(to="scout", body="near"))
    await office.files.send(office.router._envelope(sender(), "scout", OutgoingMessage(to="scout", body="far"), None))  # noqa: SLF001
    async with office.local.open_inbox("scout", 1) as local, office.files.open_inbox("scout", 1) as other:
        box = MergedInbox("scout", local, (other,), office.dead.append)
        await box.wait()
        taken = box.take_nowait()
        assert [d.envelope.body for d in taken] == ["near", "far"]
        await box.acknowledge([d.envelope.id for d in taken])
        await box.acknowledge([taken[0].envelope.id])
        with pytest.raises(ValueError, match="not taken"):
            await box.acknowledge([MessageId("unknown")])
    assert office.local.backlog("scout").messages == office.files.backlog("scout").messages == 0


@attrs.define(eq=False)
class Root:
    """The way to the root, which remembers what went over it."""

    sent: list[Envelope] = attrs.field(factory=list)

    async def send(self, envelope: Envelope) -> Receipt:
        """Take it."""
        self.sent.append(envelope)
        return Receipt(id=envelope.id, recipient=envelope.recipient.name, transport="control", stored=0.0)


@pytest.mark.parametrize("who", get_args(SenderKind))
@pytest.mark.parametrize("to", ["scout", "worker", "nobody"])
async def test_an_answer_to_a_plan_is_the_roots_to_judge_whoever_sends_it_to_whom(who: SenderKind, to: str) -> None:
    """The root knows by the socket who says it, and which plans there are; no mailbox carries it."""
    office = RouterHarness()
    office.router.authority = root = Root()
    draft = OutgoingMessage(to=to, body='{"approve": true}', kind="plan_approval_response", in_reply_to=REQUEST)
    [posted] = await office.router.send(sender("main", who), draft)
    assert posted.receipt is not None
    assert posted.receipt.transport == "control"
    assert [(envelope.recipient.name, envelope.in_reply_to) for envelope in root.sent] == [(to, REQUEST)]
    assert office.local.backlog("scout").messages == office.files.backlog("worker").messages == 0


@pytest.mark.parametrize(
    "flaw", [{"in_reply_to": None}, {"to": "*"}, {"to": "bridge:x"}, {"body": '{"approve": 1}'}, {"body": "{}"}]
)
async def test_what_is_no_answer_to_a_plan_does_not_reach_the_root(flaw: dict[str, Any]) -> None:
    office = RouterHarness()
    office.router.authority = root = Root()
    whole = {"to": "worker", "body": '{"approve": true}', "kind": "plan_approval_response", "in_reply_to": REQUEST}
    try:
        posted = await office.router.send(sender(), OutgoingMessage(**whole | flaw))
    except NotAllowed:
        pass
    else:
        assert all(isinstance(each.refusal, NotAllowed) for each in posted)
    assert root.sent == []


async def test_other_authority_goes_to_the_root_where_the_process_ends_and_words_by_mail() -> None:
    office = RouterHarness()
    office.router.authority = root = Root()
    for to in ("scout", "worker"):
        await office.router.send(sender(), OutgoingMessage(to=to, body="{}", kind="shutdown_request"))
        await office.router.send(sender(), OutgoingMessage(to=to, body="words"))
    assert [envelope.recipient.name for envelope in root.sent] == ["worker"]
    assert [envelope.kind for envelope in await office.received("scout")] == ["shutdown_request", "message"]
    assert [envelope.kind for envelope in await office.received("worker")] == ["message"]
