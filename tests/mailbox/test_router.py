"""Routes, sequence numbers, broadcasts and refusals of the policy."""

from pathlib import Path
from typing import Any, get_args

import attrs
import pytest

from coterie.clock import Clock
from coterie.mailbox.address import OtherSession, Socket
from coterie.mailbox.contract import DeadLetter, MailLimits, Receipt
from coterie.mailbox.envelope import Envelope, MessageId, MessageKind, Sender, SenderKind
from coterie.mailbox.errors import BridgeRefused, MailboxFull, NotAllowed
from coterie.mailbox.merged_inbox import MergedInbox
from coterie.mailbox.policy import AUTHORITY
from coterie.mailbox.roster import LocalRoster
from coterie.mailbox.router import OutgoingMessage, Router
from coterie.mailbox.transports.in_process.transport import QueueTransport
from tests.mailbox.file_mail import KEY, OneKey


@attrs.define(eq=False)
class RecordingBridge:
    """Bridge that records the messages it gets."""

    sent: list[tuple[Envelope, Socket | OtherSession]] = attrs.field(factory=list)

    async def send(self, envelope: Envelope, address: Socket | OtherSession) -> Receipt:
        """Record the message."""
        self.sent.append((envelope, address))
        return Receipt(id=envelope.id, recipient="main", transport="bridge", stored=0.0)


@attrs.define(eq=False)
class RouterHarness:
    """A session with two processes: `near` members are tasks here, `far` members are not."""

    near: tuple[str, ...] = ("main", "scout")
    far: tuple[str, ...] = ("worker",)
    limits: MailLimits = attrs.field(factory=MailLimits)
    dead: list[DeadLetter] = attrs.field(factory=list)
    bridge: RecordingBridge | None = attrs.field(factory=RecordingBridge)
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
        """Return the messages pending for *name*, over any route."""
        async with self.local.open_inbox(name, 1) as local, self.files.open_inbox(name, 1) as other:
            box = MergedInbox(name, local, (other,), self.dead.append)
            return [delivery.envelope for delivery in box.take_nowait()]


def sender(name: str = "main", kind: SenderKind = "lead") -> Sender:
    return Sender(name=name, incarnation=1, session="s", kind=kind)


async def test_mail_goes_to_local_tasks_in_memory_and_to_others_by_file() -> None:
    harness = RouterHarness()
    for to in ("scout", "worker"):
        await harness.router.send(sender(), OutgoingMessage(to=to, body=to))
    assert harness.local.backlog("scout").messages == harness.files.backlog("worker").messages == 1
    assert [e.body for e in await harness.received("worker")] == ["worker"]


async def test_messages_are_signed_and_numbered_by_sender_and_recipient() -> None:
    harness = RouterHarness()
    for who, to in (("main", "scout"), ("main", "worker"), ("main", "scout"), ("worker", "scout")):
        await harness.router.send(sender(who, "peer"), OutgoingMessage(to=to, body="x"))
    found = await harness.received("scout")
    assert [(e.sender.name, e.sequence) for e in found] == [("main", 1), ("main", 2), ("worker", 1)]
    assert all(e.is_signed_with(KEY) for e in found)


async def test_broadcast_reaches_all_but_the_sender() -> None:
    harness = RouterHarness()
    await harness.router.send(sender(), OutgoingMessage(to="scout", body="x"))
    results = await harness.router.send(sender(), OutgoingMessage(to="*", body="all"))
    assert [each.recipient for each in results] == ["scout", "worker"]
    assert len({each.receipt.id for each in results if each.receipt}) == 2
    groups = {(await harness.received(name))[-1].group for name in ("scout", "worker")}
    assert len(groups) == 1
    assert groups != {None}


async def test_broadcast_reaches_others_when_one_mailbox_is_full() -> None:
    harness = RouterHarness(limits=MailLimits(messages=1))
    await harness.router.send(sender(), OutgoingMessage(to="scout", body="x"))
    full, reached = await harness.router.send(sender(), OutgoingMessage(to="*", body="all"))
    assert isinstance(full.refusal, MailboxFull)
    assert reached.receipt is not None


async def test_broadcast_skips_ended_members() -> None:
    harness = RouterHarness()
    harness.roster.set_state("scout", "ended")
    results = await harness.router.send(sender(), OutgoingMessage(to="*", body="all"))
    assert [each.recipient for each in results] == ["worker"]


async def test_other_sessions_are_reached_over_the_bridge() -> None:
    harness = RouterHarness()
    assert harness.bridge is not None
    for to in ("bridge:20261116-1", "uds:/run/x.sock"):
        [sent] = await harness.router.send(sender(), OutgoingMessage(to=to, body="hi"))
        assert sent.receipt is not None
        assert sent.recipient == to
    assert [address for _, address in harness.bridge.sent] == [OtherSession("20261116-1"), Socket(Path("/run/x.sock"))]
    assert {envelope.recipient.name for envelope, _ in harness.bridge.sent} == {"main"}


async def test_without_a_bridge_another_session_is_refused() -> None:
    with pytest.raises(BridgeRefused, match="no bridge"):
        await RouterHarness(bridge=None).router.send(sender(), OutgoingMessage(to="bridge:x", body="hi"))


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
async def test_sender_kind_decides_which_kinds_it_may_send(kind: MessageKind, who: SenderKind) -> None:
    harness = RouterHarness()
    draft = OutgoingMessage(to="scout", body=BODIES[kind], kind=kind, in_reply_to=REQUEST)
    if who in ALLOWED[kind]:
        assert await harness.router.send(sender("main", who), draft)
        return
    with pytest.raises(NotAllowed) as caught:
        await harness.router.send(sender("main", who), draft)
    assert caught.value.kind == kind
    assert await harness.received("scout") == []


@pytest.mark.parametrize("to", ["*", "bridge:x", "uds:/run/x.sock"])
async def test_structured_messages_need_one_named_recipient(to: str) -> None:
    harness = RouterHarness()
    draft = OutgoingMessage(to=to, body="{}", kind="task_assignment")
    if to == "*":
        assert all(isinstance(each.refusal, NotAllowed) for each in await harness.router.send(sender(), draft))
    else:
        with pytest.raises(NotAllowed, match="by name"):
            await harness.router.send(sender(), draft)


@pytest.mark.parametrize("kind", sorted(AUTHORITY))
async def test_authority_is_refused_through_files(kind: Any) -> None:
    with pytest.raises(NotAllowed, match="only inside one process"):
        await RouterHarness().router.send(
            sender(), OutgoingMessage(to="worker", body=BODIES[kind], kind=kind, in_reply_to=REQUEST)
        )


async def test_authority_is_only_for_the_current_incarnation() -> None:
    harness = RouterHarness()
    await harness.router.send(sender(), OutgoingMessage(to="scout", body="{}", kind="shutdown_request"))
    await harness.router.send(sender(), OutgoingMessage(to="scout", body="words"))
    async with harness.local.open_inbox("scout", 2) as inbox:
        assert [d.envelope.body for d in inbox.take_nowait()] == ["words"]
    assert [letter.reason for letter in harness.dead] == ["stale_incarnation"]


async def test_answer_must_name_its_request_and_not_go_to_its_sender() -> None:
    harness = RouterHarness()
    with pytest.raises(NotAllowed, match="name the request"):
        await harness.router.send(sender(), OutgoingMessage(to="scout", body="{}", kind="plan_approval_response"))
    draft = OutgoingMessage(to="main", body="{}", kind="plan_approval_response", in_reply_to=REQUEST)
    with pytest.raises(NotAllowed, match="its own request"):
        await harness.router.send(sender(), draft)


async def test_authority_found_in_a_file_is_dead_lettered() -> None:
    harness = RouterHarness()
    forged = OutgoingMessage(to="scout", body="{}", kind="shutdown_request")
    envelope = harness.router._envelope(sender(), "scout", forged, None)  # noqa: SLF001 - as a forger would make it
    await harness.files.send(envelope)
    await harness.files.send(attrs.evolve(envelope, kind="message", id=MessageId("2"), mac=None).sign(KEY))
    async with harness.local.open_inbox("scout", 1) as local, harness.files.open_inbox("scout", 1) as other:
        box = MergedInbox("scout", local, (other,), harness.dead.append)
        assert [d.envelope.kind for d in box.take_nowait()] == ["message"]
        assert [(letter.reason, letter.envelope) for letter in harness.dead] == [("refused", envelope)]
        await box.acknowledge([MessageId("2")])
    assert harness.files.backlog("scout").messages == 0


async def test_merged_inbox_acknowledges_in_the_inbox_of_each_message() -> None:
    harness = RouterHarness()
    await harness.router.send(sender(), OutgoingMessage(to="scout", body="near"))
    await harness.files.send(harness.router._envelope(sender(), "scout", OutgoingMessage(to="scout", body="far"), None))  # noqa: SLF001
    async with harness.local.open_inbox("scout", 1) as local, harness.files.open_inbox("scout", 1) as other:
        box = MergedInbox("scout", local, (other,), harness.dead.append)
        await box.wait()
        taken = box.take_nowait()
        assert [d.envelope.body for d in taken] == ["near", "far"]
        await box.acknowledge([d.envelope.id for d in taken])
        await box.acknowledge([taken[0].envelope.id])
        with pytest.raises(ValueError, match="cannot acknowledge message unknown"):
            await box.acknowledge([MessageId("unknown")])
    assert harness.local.backlog("scout").messages == harness.files.backlog("scout").messages == 0


@attrs.define(eq=False)
class Root:
    """Authority port that records the messages it gets."""

    sent: list[Envelope] = attrs.field(factory=list)

    async def send(self, envelope: Envelope) -> Receipt:
        """Record the message."""
        self.sent.append(envelope)
        return Receipt(id=envelope.id, recipient=envelope.recipient.name, transport="control", stored=0.0)


@pytest.mark.parametrize("who", get_args(SenderKind))
@pytest.mark.parametrize("to", ["scout", "worker", "nobody"])
async def test_plan_approval_goes_to_the_root_for_any_sender_and_recipient(who: SenderKind, to: str) -> None:
    """The root identifies the sender by its socket and knows the plans."""
    harness = RouterHarness()
    harness.router.authority = root = Root()
    draft = OutgoingMessage(to=to, body='{"approve": true}', kind="plan_approval_response", in_reply_to=REQUEST)
    [sent] = await harness.router.send(sender("main", who), draft)
    assert sent.receipt is not None
    assert sent.receipt.transport == "control"
    assert [(envelope.recipient.name, envelope.in_reply_to) for envelope in root.sent] == [(to, REQUEST)]
    assert harness.local.backlog("scout").messages == harness.files.backlog("worker").messages == 0


@pytest.mark.parametrize(
    "flaw", [{"in_reply_to": None}, {"to": "*"}, {"to": "bridge:x"}, {"body": '{"approve": 1}'}, {"body": "{}"}]
)
async def test_invalid_plan_approval_does_not_reach_the_root(flaw: dict[str, Any]) -> None:
    harness = RouterHarness()
    harness.router.authority = root = Root()
    whole = {"to": "worker", "body": '{"approve": true}', "kind": "plan_approval_response", "in_reply_to": REQUEST}
    try:
        results = await harness.router.send(sender(), OutgoingMessage(**whole | flaw))
    except NotAllowed:
        pass
    else:
        assert all(isinstance(each.refusal, NotAllowed) for each in results)
    assert root.sent == []


async def test_authority_for_other_processes_goes_to_the_root_and_text_by_mail() -> None:
    harness = RouterHarness()
    harness.router.authority = root = Root()
    for to in ("scout", "worker"):
        await harness.router.send(sender(), OutgoingMessage(to=to, body="{}", kind="shutdown_request"))
        await harness.router.send(sender(), OutgoingMessage(to=to, body="words"))
    assert [envelope.recipient.name for envelope in root.sent] == ["worker"]
    assert [envelope.kind for envelope in await harness.received("scout")] == ["shutdown_request", "message"]
    assert [envelope.kind for envelope in await harness.received("worker")] == ["message"]
