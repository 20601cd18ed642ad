"""Routes, sequence numbers, broadcasts, refusals of the policy, and bodies of structured messages."""

from pathlib import Path
from typing import Any, Literal, get_args

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.agents.tools.team.send_message import SendMessage
from coterie.agents.tools.tool import Workspace, call_tool
from coterie.clock import Clock
from coterie.mailbox.address import OtherSession, Socket
from coterie.mailbox.contract import DeadLetter, MailLimits, Receipt
from coterie.mailbox.envelope import Envelope, MessageId, MessageKind, Sender, SenderKind
from coterie.mailbox.errors import BridgeRefused, NotAllowed
from coterie.mailbox.merged_inbox import MergedInbox
from coterie.mailbox.message_bodies import (
    BODIES,
    Idle,
    MessageBody,
    PermissionRequest,
    PermissionResponse,
    PlanApprovalRequest,
    PlanApprovalResponse,
    ShutdownRequest,
    ShutdownResponse,
    TaskAssignment,
    TaskNotification,
)
from coterie.mailbox.policy import AUTHORITY
from coterie.mailbox.roster import LocalRoster
from coterie.mailbox.router import OutgoingMessage, Router
from coterie.mailbox.transports.in_process.transport import QueueTransport
from tests.mailbox.file_mail import KEY, OneKey


@attrs.define(eq=False)
class Recorder:
    """Bridge or authority port that records the messages it gets."""

    transport: Literal["bridge", "control"]
    sent: list[tuple[Envelope, Socket | OtherSession | None]] = attrs.field(factory=list)

    async def send(self, envelope: Envelope, address: Socket | OtherSession | None = None) -> Receipt:
        """Record the message."""
        self.sent.append((envelope, address))
        return Receipt(id=envelope.id, recipient=envelope.recipient.name, transport=self.transport, stored=0.0)


@attrs.define(eq=False)
class RouterHarness:
    """A session with two processes: `near` members are tasks here, `far` members are not."""

    near: tuple[str, ...] = ("main", "scout")
    far: tuple[str, ...] = ("worker",)
    limits: MailLimits = attrs.field(factory=MailLimits)
    dead: list[DeadLetter] = attrs.field(factory=list)
    bridge: Recorder | None = attrs.field(factory=lambda: Recorder("bridge"))
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


async def test_mail_is_routed_signed_and_numbered_by_sender_and_recipient() -> None:
    """Mail for local tasks stays in memory, mail for others goes by file."""
    harness = RouterHarness()
    for who, to in (("main", "scout"), ("main", "worker"), ("main", "scout"), ("worker", "scout")):
        await harness.router.send(sender(who, "peer"), OutgoingMessage(to=to, body="x"))
    assert (harness.local.backlog("scout").messages, harness.files.backlog("worker").messages) == (3, 1)
    found = await harness.received("scout")
    assert [(e.sender.name, e.sequence) for e in found] == [("main", 1), ("main", 2), ("worker", 1)]
    assert all(e.is_signed_with(KEY) for e in found)
    assert [(e.sender.name, e.sequence) for e in await harness.received("worker")] == [("main", 1)]


async def test_text_is_broadcast_to_all_but_the_sender() -> None:
    harness = RouterHarness()
    await harness.router.send(sender(), OutgoingMessage(to="scout", body="x"))
    results = await harness.router.send(sender(), OutgoingMessage(to="*", body="all"))
    assert [each.recipient for each in results] == ["scout", "worker"]
    assert len({each.receipt.id for each in results if each.receipt}) == 2
    groups = {(await harness.received(name))[-1].group for name in ("scout", "worker")}
    assert len(groups) == 1
    assert groups != {None}
    refused = await harness.router.send(sender(), OutgoingMessage(to="*", body="{}", kind="task_assignment"))
    assert [type(each.refusal) for each in refused] == [NotAllowed, NotAllowed], (
        "a structured message has one recipient"
    )


async def test_other_sessions_are_reached_only_over_the_bridge() -> None:
    harness = RouterHarness()
    assert harness.bridge is not None
    for to in ("bridge:20261116-1", "uds:/run/x.sock"):
        [sent] = await harness.router.send(sender(), OutgoingMessage(to=to, body="hi"))
        assert sent.receipt is not None
        assert sent.recipient == to
    assert [address for _, address in harness.bridge.sent] == [OtherSession("20261116-1"), Socket(Path("/run/x.sock"))]
    assert {envelope.recipient.name for envelope, _ in harness.bridge.sent} == {"main"}
    with pytest.raises(BridgeRefused, match="no bridge"):
        await RouterHarness(bridge=None).router.send(sender(), OutgoingMessage(to="bridge:x", body="hi"))


REQUEST = MessageId("r")
EXAMPLES: list[MessageBody] = [
    ShutdownRequest(reason="done here", deadline=2.5),
    ShutdownResponse(accepted=False, reason="the deadline"),
    PlanApprovalRequest(plan="1. Read.\n2. Write."),
    PlanApprovalResponse(approve=False, feedback="No tests?"),
    PermissionRequest(tool="Bash", subject="git push", details={"timeout": "9"}, reason="it leaves the machine"),
    PermissionResponse(approve=True),
    TaskAssignment(task_id=7, subject="Mend the gate"),
    TaskNotification(status="completed", summary="Done.", result="Two bugs.", turns=3, tool_calls=2, cost_usd="0.01"),
    Idle(outcome="completed"),
]
TEXTS: dict[MessageKind, str] = {"message": "hello"}
TEXTS.update({body.kind: body.to_body() for body in EXAMPLES})
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
    draft = OutgoingMessage(to="scout", body=TEXTS[kind], kind=kind, in_reply_to=REQUEST)
    if who in ALLOWED[kind]:
        assert await harness.router.send(sender("main", who), draft)
        return
    with pytest.raises(NotAllowed) as caught:
        await harness.router.send(sender("main", who), draft)
    assert caught.value.kind == kind
    assert await harness.received("scout") == []


@pytest.mark.parametrize("kind", sorted(AUTHORITY))
async def test_authority_is_refused_through_files(kind: Any) -> None:
    draft = OutgoingMessage(to="worker", body=TEXTS[kind], kind=kind, in_reply_to=REQUEST)
    with pytest.raises(NotAllowed, match="to an agent in another process"):
        await RouterHarness().router.send(sender(), draft)


async def test_authority_is_only_for_the_current_incarnation() -> None:
    harness = RouterHarness()
    await harness.router.send(sender(), OutgoingMessage(to="scout", body="{}", kind="shutdown_request"))
    await harness.router.send(sender(), OutgoingMessage(to="scout", body="words"))
    async with harness.local.open_inbox("scout", 2) as inbox:
        assert [d.envelope.body for d in inbox.take_nowait()] == ["words"]
    assert [letter.reason for letter in harness.dead] == ["stale_incarnation"]


@pytest.mark.parametrize(
    ("kind", "to", "request_id", "reason"),
    [
        ("plan_approval_response", "scout", None, "name the request"),
        ("plan_approval_response", "main", REQUEST, "to itself"),
        ("task_assignment", "bridge:x", None, "one agent of this session"),
        ("task_assignment", "uds:/run/x.sock", None, "one agent of this session"),
    ],
)
async def test_structured_message_needs_a_named_recipient_and_an_answer_its_request(
    kind: MessageKind, to: str, request_id: MessageId | None, reason: str
) -> None:
    draft = OutgoingMessage(to=to, body=TEXTS[kind], kind=kind, in_reply_to=request_id)
    with pytest.raises(NotAllowed, match=reason):
        await RouterHarness().router.send(sender(), draft)


async def test_merged_inbox_acknowledges_in_each_inbox_and_refuses_authority_in_a_file() -> None:
    harness = RouterHarness()
    forged = harness.router._envelope(  # noqa: SLF001 - as a forger would make it
        sender(), "scout", OutgoingMessage(to="scout", body="{}", kind="shutdown_request"), None
    )
    await harness.router.send(sender(), OutgoingMessage(to="scout", body="near"))
    await harness.files.send(forged)
    await harness.files.send(attrs.evolve(forged, kind="message", body="far", id=MessageId("2"), mac=None).sign(KEY))
    async with harness.local.open_inbox("scout", 1) as local, harness.files.open_inbox("scout", 1) as other:
        box = MergedInbox("scout", local, (other,), harness.dead.append)
        await box.wait()
        taken = box.take_nowait()
        assert [d.envelope.body for d in taken] == ["near", "far"]
        assert [(letter.reason, letter.envelope) for letter in harness.dead] == [("refused", forged)]
        await box.acknowledge([d.envelope.id for d in taken])
        await box.acknowledge([taken[0].envelope.id])
        with pytest.raises(ValueError, match="cannot acknowledge message unknown"):
            await box.acknowledge([MessageId("unknown")])
    assert harness.local.backlog("scout").messages == harness.files.backlog("scout").messages == 0


@pytest.mark.parametrize("who", get_args(SenderKind))
@pytest.mark.parametrize("to", ["scout", "worker", "nobody"])
async def test_plan_approval_goes_to_the_root_for_any_sender_and_recipient(who: SenderKind, to: str) -> None:
    """The root identifies the sender by its socket and knows the plans."""
    harness = RouterHarness()
    harness.router.authority = root = Recorder("control")
    draft = OutgoingMessage(to=to, body='{"approve": true}', kind="plan_approval_response", in_reply_to=REQUEST)
    [sent] = await harness.router.send(sender("main", who), draft)
    assert sent.receipt is not None
    assert sent.receipt.transport == "control"
    assert [(envelope.recipient.name, envelope.in_reply_to) for envelope, _ in root.sent] == [(to, REQUEST)]
    assert harness.local.backlog("scout").messages == harness.files.backlog("worker").messages == 0


@pytest.mark.parametrize(
    "flaw", [{"in_reply_to": None}, {"to": "*"}, {"to": "bridge:x"}, {"body": '{"approve": 1}'}, {"body": "{}"}]
)
async def test_invalid_plan_approval_does_not_reach_the_root(flaw: dict[str, Any]) -> None:
    harness = RouterHarness()
    harness.router.authority = root = Recorder("control")
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
    harness.router.authority = root = Recorder("control")
    for to in ("scout", "worker"):
        await harness.router.send(sender(), OutgoingMessage(to=to, body="{}", kind="shutdown_request"))
        await harness.router.send(sender(), OutgoingMessage(to=to, body="words"))
    assert [envelope.recipient.name for envelope, _ in root.sent] == ["worker"]
    assert [envelope.kind for envelope in await harness.received("scout")] == ["shutdown_request", "message"]
    assert [envelope.kind for envelope in await harness.received("worker")] == ["message"]


def test_body_of_every_kind_survives_a_round_trip() -> None:
    assert {body.kind for body in EXAMPLES} == set(BODIES) == set(get_args(MessageKind)) - {"message"}
    for body in EXAMPLES:
        assert type(body).from_body(body.to_body()) == body


@settings(deadline=None)  # the first body of each kind is slow to read
@given(st.sampled_from(sorted(BODIES)), st.text() | st.text(alphabet='{}[]":,0123456789etrufalsn \\'))
def test_invalid_body_raises_only_value_error(kind: MessageKind, text: str) -> None:
    try:
        body = BODIES[kind].from_body(text)
    except ValueError:
        return
    assert BODIES[kind].from_body(body.to_body()) == body


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("shutdown_request", "please stop"),
        ("shutdown_request", "[]"),
        ("shutdown_request", "{} {}"),
        ("shutdown_request", '{"deadline": -1}'),
        ("shutdown_request", '{"deadline": "soon"}'),
        ("shutdown_request", '{"deadline": NaN}'),
        ("shutdown_request", '{"dead_line": 3}'),
        ("shutdown_response", "{}"),
        ("plan_approval_request", "{}"),
        ("plan_approval_response", '{"feedback": "fine"}'),
        ("plan_approval_response", '{"approve": "yes"}'),
        ("permission_request", '{"subject": "git push"}'),
        ("permission_response", '{"approve": 1}'),
        ("task_assignment", '{"subject": "Mend it"}'),
        ("task_assignment", '{"task_id": 0}'),
        ("idle", '{"outcome": 3}'),
        ("idle", "\ud800"),
        ("idle", "[" * 100_000),
    ],
)
async def test_body_that_does_not_fit_its_kind_is_refused(kind: MessageKind, body: str) -> None:
    harness = RouterHarness()
    draft = OutgoingMessage(to="scout", body=body, kind=kind, in_reply_to=REQUEST)
    with pytest.raises(NotAllowed, match=f"the body of the message is not a valid {kind}"):
        await harness.router.send(sender("main", "lead" if "lead" in ALLOWED[kind] else "peer"), draft)
    assert await harness.received("scout") == []


@pytest.mark.parametrize("message", [{"type": "shutdown_response", "accepted": True}, {"type": "idle"}])
async def test_model_cannot_send_shutdown_responses_or_idle_notices(tmp_path: Path, message: dict[str, Any]) -> None:
    harness = RouterHarness()
    tool = SendMessage(router=harness.router, sender=sender("scout", "peer"))
    workspace = Workspace(root=tmp_path, scratch=tmp_path)
    arguments = {"to": "main", "message": message | {"request_id": "r"}}
    result = await call_tool({"SendMessage": tool}, "SendMessage", arguments, workspace)
    assert result.is_error
    assert "is not a known `type`" in result.text
    assert await harness.received("main") == []
