"""Requests between agents: the reply, other mail during the wait, and cancellation."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.layers.layer7_team_protocol import ReplyMatcher
from coterie.clock import Clock
from coterie.mailbox.contract import DeadLetter
from coterie.mailbox.envelope import Envelope, MessageId, MessageKind, Recipient, Sender
from coterie.mailbox.merged_inbox import MergedInbox
from coterie.mailbox.message_bodies import (
    MessageBody,
    PlanApprovalRequest,
    PlanApprovalResponse,
    ShutdownResponse,
)
from coterie.mailbox.roster import LocalRoster
from coterie.mailbox.router import OutgoingMessage, Router
from coterie.mailbox.transports.file.transport import FileTransport
from coterie.mailbox.transports.in_process.transport import QueueTransport
from tests.agents.in_process_team import NoKeys

PLAN = PlanApprovalRequest(plan="1. Look.")
YES = PlanApprovalResponse(approve=True)


@attrs.define(eq=False, kw_only=True)
class TwoMembers:
    """Two members of one process, and the mail of `worker`, which also has a file mailbox."""

    router: Router
    near: QueueTransport
    far: FileTransport
    mail: Messaging
    answers: list[Envelope] = attrs.field(factory=list)

    def sender(self, name: str) -> Sender:
        """Return one of the two agents as a sender."""
        return Sender(name=name, incarnation=1, session="s", kind="lead" if name == "main" else "peer")

    async def ask(self, request: PlanApprovalRequest = PLAN) -> None:
        """Send a request of the worker, and keep the result."""
        message = OutgoingMessage(to="main", body=request.to_body(), kind=request.kind)
        [sent] = await self.router.send(self.sender("worker"), message)
        assert sent.receipt is not None
        expected = ReplyMatcher(request=sent.receipt.id, asked="main", kind="plan_approval_response")
        self.answers.append(await self.mail.wait_for_answer(expected))

    async def requests(self) -> list[Envelope]:
        """Return the requests that the lead got, once all tasks are blocked."""
        await trio.testing.wait_all_tasks_blocked()
        async with self.near.open_inbox("main", 1) as inbox:
            return [delivery.envelope for delivery in inbox.take_nowait()]

    async def answer(self, request: Envelope, body: MessageBody) -> None:
        """Send a reply of the lead."""
        draft = OutgoingMessage(to="worker", body=body.to_body(), kind=body.kind, in_reply_to=request.id)
        await self.router.send(self.sender("main"), draft)

    def shown(self) -> str:
        """Return the text that the worker's model would get now."""
        return b"".join(self.mail.add_blocks(None, ()).blocks).decode()  # type: ignore[arg-type]  # it asks nothing of it


@asynccontextmanager
async def open_two_members(directory: Path) -> AsyncIterator[TwoMembers]:
    roster, dead = LocalRoster(), list[DeadLetter]()
    for name in ("main", "worker"):
        roster.join(name)
    near = QueueTransport(roster, None, Clock(), dead.append)
    far = FileTransport(directory / "mail", roster, None, Clock(), dead.append)
    try:
        with trio.fail_after(10):
            async with near.open_inbox("worker", 1) as local, far.open_inbox("worker", 1) as other:
                mail = Messaging(MergedInbox("worker", local, (other,), dead.append))
                router = Router(roster, NoKeys(), near, far, local_names={"main", "worker"})
                yield TwoMembers(router=router, near=near, far=far, mail=mail)
    finally:
        far.close()


async def test_reply_goes_to_the_requester_and_other_mail_to_the_conversation(tmp_path: Path) -> None:
    async with open_two_members(tmp_path) as desk:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.ask)
            [request] = await desk.requests()
            assert PlanApprovalRequest.from_body(request.body) == PLAN
            await desk.router.send(desk.sender("main"), OutgoingMessage(to="worker", body="I am reading it."))
            await trio.testing.wait_all_tasks_blocked()
            assert desk.answers == []
            await desk.answer(request, YES)
        assert [(reply.sender, reply.body) for reply in desk.answers] == [(desk.sender("main"), YES.to_body())]
        told = desk.shown()
        assert "I am reading it." in told
        assert "plan_approval_response" not in told


@pytest.mark.parametrize(
    "flaw",
    [
        {"in_reply_to": MessageId("another")},
        {"in_reply_to": None},
        {"kind": "permission_response"},
        {"kind": "message"},
        {"sender": Sender(name="worker", incarnation=1, session="s", kind="peer")},
        {"sender": Sender(name="main", incarnation=1, session="s", kind="peer")},
        {"body": '{"approve": "yes"}'},
    ],
    ids=["of another request", "of none", "of another kind", "words", "one's own", "a peer's", "unreadable"],
)
async def test_invalid_reply_is_delivered_as_normal_mail(tmp_path: Path, flaw: dict[str, Any]) -> None:
    """The message bypasses the router, as from an attacker with access to the transport."""
    async with open_two_members(tmp_path) as desk, trio.open_nursery() as nursery:
        nursery.start_soon(desk.ask)
        [request] = await desk.requests()
        kind: MessageKind = "plan_approval_response"
        answer = Envelope(
            sender=desk.sender("main"),
            recipient=Recipient(name="worker", incarnation=1),
            sequence=1,
            kind=kind,
            body=YES.to_body(),
            in_reply_to=request.id,
            created=0.0,
        )
        await desk.near.send(attrs.evolve(answer, id=MessageId("x"), **flaw))
        await trio.testing.wait_all_tasks_blocked()
        assert desk.answers == []
        assert desk.shown().count("</message>") == 1
        await desk.near.send(answer)


async def test_peer_cannot_reply_for_another_agent(tmp_path: Path) -> None:
    expected = ReplyMatcher(request=MessageId("r"), asked="worker", kind="shutdown_response")
    async with open_two_members(tmp_path) as desk:
        for name in ("scout", "worker"):
            who = Sender(name=name, incarnation=1, session="s", kind="peer")
            body = ShutdownResponse(accepted=True, reason=name).to_body()
            await desk.near.send(
                Envelope(
                    sender=who,
                    recipient=Recipient(name="worker"),
                    sequence=1,
                    kind="shutdown_response",
                    body=body,
                    in_reply_to=MessageId("r"),
                    created=0.0,
                )
            )
        # The message arrives before a task waits for it.
        await desk.mail.receive()
        assert (await desk.mail.wait_for_answer(expected)).sender.name == "worker"
        assert "scout" in desk.shown()


async def test_concurrent_requests_each_get_their_own_reply(tmp_path: Path) -> None:
    """The requests wait on one mailbox, whose file only one task can watch."""
    plans = [PlanApprovalRequest(plan=str(number)) for number in range(5)]
    async with open_two_members(tmp_path) as desk:
        async with trio.open_nursery() as nursery:
            for plan in plans:
                nursery.start_soon(desk.ask, plan)
            for request in reversed(await desk.requests()):
                plan = PlanApprovalRequest.from_body(request.body)
                await desk.answer(request, PlanApprovalResponse(approve=False, feedback=plan.plan))
        assert sorted(PlanApprovalResponse.from_body(reply.body).feedback for reply in desk.answers) == [
            "0",
            "1",
            "2",
            "3",
            "4",
        ]
        assert desk.shown() == ""


async def test_cancelled_request_leaves_the_other_requests_waiting(tmp_path: Path) -> None:
    async with open_two_members(tmp_path) as desk, trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def give_up() -> None:
            with scope:
                await desk.ask(PlanApprovalRequest(plan="first"))

        nursery.start_soon(give_up)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(desk.ask)
        first, second = await desk.requests()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        for request in (first, second):
            await desk.answer(request, YES)
        await trio.testing.wait_all_tasks_blocked()
        assert len(desk.answers) == 1
        assert f'reply-to=\\"{first.id}\\"' in desk.shown()


async def test_reply_during_a_cancellation_is_not_lost(tmp_path: Path) -> None:
    async with open_two_members(tmp_path) as desk:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(desk.ask)
                [request] = await desk.requests()
                await desk.answer(request, YES)
                scope.cancel()
                assert desk.shown() == ""  # it was taken, for who asked
        assert desk.answers == []
        assert "plan_approval_response" in desk.shown()
