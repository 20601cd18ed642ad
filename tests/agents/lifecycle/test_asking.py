"""Asking for a yes and waiting for it: what is the answer, what is only mail, and what becomes of each."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from coterie.agents.layers.mail import DeliverMail
from coterie.agents.lifecycle.answers import Expectation
from coterie.agents.lifecycle.membership import Answered, Membership
from coterie.clock import Clock
from coterie.mailbox.contract import DeadLetter
from coterie.mailbox.envelope import Envelope, Kind, Recipient, Sender
from coterie.mailbox.errors import NotAllowed, UnknownRecipient
from coterie.mailbox.file import FileTransport
from coterie.mailbox.ids import MessageId
from coterie.mailbox.letterbox import Letterbox
from coterie.mailbox.lifecycle import (
    Body,
    PermissionRequest,
    PermissionResponse,
    PlanApprovalRequest,
    PlanApprovalResponse,
    ShutdownRequest,
    ShutdownResponse,
)
from coterie.mailbox.queue import QueueTransport
from coterie.mailbox.roster import LocalRoster
from coterie.mailbox.router import Draft, Router
from tests.agents.team import NoKeys, Team, open_team
from tests.agents.working import Noting

PLAN = PlanApprovalRequest(plan="1. Look.")
YES = PlanApprovalResponse(approve=True)


@attrs.define(eq=False, kw_only=True)
class Desk:
    """Two members of one process, and the mail of `worker`, which also has a file mailbox."""

    router: Router
    near: QueueTransport
    far: FileTransport
    mail: DeliverMail
    answers: list[Answered[PlanApprovalResponse]] = attrs.field(factory=list)

    def member(self, name: str, lead: str | None = None) -> Membership:
        """How one of them sends."""
        who = Sender(name=name, incarnation=1, session="s", kind="lead" if name == "main" else "peer")
        return Membership(router=self.router, sender=who, lead=lead)

    async def ask(self, request: PlanApprovalRequest = PLAN) -> None:
        """Let the worker ask, and keep what came of it."""
        self.answers.append(await self.member("worker").ask(self.mail, "main", request, PlanApprovalResponse))

    async def requests(self) -> list[Envelope]:
        """What the lead was asked, once everybody waits."""
        await trio.testing.wait_all_tasks_blocked()
        async with self.near.open_inbox("main", 1) as inbox:
            return [delivery.envelope for delivery in inbox.take_nowait()]

    async def answer(self, request: Envelope, body: Body) -> None:
        """Let the lead answer."""
        draft = Draft(to="worker", body=body.to_body(), kind=body.kind, in_reply_to=request.id)
        await self.router.send(self.member("main").sender, draft)

    def shown(self) -> str:
        """What the worker's model would be told now."""
        return b"".join(self.mail.add(None, ()).blocks).decode()  # type: ignore[arg-type]  # it asks nothing of it


@asynccontextmanager
async def open_desk(directory: Path) -> AsyncIterator[Desk]:
    roster, dead = LocalRoster(), list[DeadLetter]()
    for name in ("main", "worker"):
        roster.join(name)
    near = QueueTransport(roster, None, Clock(), dead.append)
    far = FileTransport(directory / "mail", roster, None, Clock(), dead.append)
    try:
        with trio.fail_after(10):
            async with near.open_inbox("worker", 1) as local, far.open_inbox("worker", 1) as other:
                mail = DeliverMail(Letterbox("worker", local, (other,), dead.append))
                router = Router(roster, NoKeys(), near, far, locals={"main", "worker"})
                yield Desk(router=router, near=near, far=far, mail=mail)
    finally:
        far.close()


async def test_the_answer_goes_to_who_asked_and_all_other_mail_to_the_conversation(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(desk.ask)
            [request] = await desk.requests()
            assert PlanApprovalRequest.from_body(request.body) == PLAN
            await desk.router.send(desk.member("main").sender, Draft(to="worker", body="I am reading it."))
            await trio.testing.wait_all_tasks_blocked()
            assert desk.answers == []
            await desk.answer(request, YES)
        assert desk.answers == [Answered(sender=desk.member("main").sender, body=YES)]
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
async def test_what_is_not_the_answer_is_mail_as_any_other(tmp_path: Path, flaw: dict[str, Any]) -> None:
    """It passes by the router, as from somebody who got hold of the transport."""
    async with open_desk(tmp_path) as desk, trio.open_nursery() as nursery:
        nursery.start_soon(desk.ask)
        [request] = await desk.requests()
        kind: Kind = "plan_approval_response"
        answer = Envelope(
            sender=desk.member("main").sender,
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


async def test_a_peer_cannot_answer_for_another(tmp_path: Path) -> None:
    expected = Expectation(request=MessageId("r"), asked="worker", kind="shutdown_response")
    async with open_desk(tmp_path) as desk:
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
        # It is here before anybody waits for it.
        await desk.mail.receive()
        assert (await desk.mail.wait_for_answer(expected)).sender.name == "worker"
        assert "scout" in desk.shown()


async def test_several_who_ask_at_once_each_get_their_own_answer(tmp_path: Path) -> None:
    """They wait on one mailbox, whose file can be watched by one task at a time."""
    plans = [PlanApprovalRequest(plan=str(number)) for number in range(5)]
    async with open_desk(tmp_path) as desk:
        async with trio.open_nursery() as nursery:
            for plan in plans:
                nursery.start_soon(desk.ask, plan)
            for request in reversed(await desk.requests()):
                plan = PlanApprovalRequest.from_body(request.body)
                await desk.answer(request, PlanApprovalResponse(approve=False, feedback=plan.plan))
        assert sorted(answered.body.feedback for answered in desk.answers) == ["0", "1", "2", "3", "4"]
        assert desk.shown() == ""


async def test_when_one_gives_up_the_others_go_on_waiting(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk, trio.open_nursery() as nursery:
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


async def test_an_answer_that_comes_as_one_gives_up_is_not_lost(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(desk.ask)
                [request] = await desk.requests()
                await desk.answer(request, YES)
                scope.cancel()
                assert desk.shown() == ""  # it was taken, for who asked
        assert desk.answers == []
        assert "plan_approval_response" in desk.shown()


async def test_asking_nobody_or_without_the_right_to_is_an_error(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        with pytest.raises(UnknownRecipient):
            await desk.member("worker").ask(desk.mail, "mian", PLAN, PlanApprovalResponse)
        with pytest.raises(NotAllowed):
            await desk.member("main").ask(desk.mail, "worker", PLAN, PlanApprovalResponse)


async def test_a_tool_asks_while_its_agent_is_busy(tmp_path: Path) -> None:
    script = "worker: [{tools: [{Push: {text: git push}}]}, {text: pushed}]"
    async with open_team(script, tmp_path) as team:

        async def push(command: str) -> str:
            request = PermissionRequest(tool="Bash", subject=command)
            answered = await team.member("worker").ask(team.mail["worker"], "main", request, PermissionResponse)
            return f"{answered.sender.name} says {answered.body.reason}"

        team.roster.join("main")
        team.start("worker", "Push.", Noting(name="Push", act=push))
        await team.until(lambda: team.transport.backlog("main").messages == 1)
        [request] = await team.received("main")
        body = PermissionResponse(approve=False, reason="not on Fridays").to_body()
        await team.router.send(team.sender("main"), Draft(to="worker", body="By the way."))
        await team.router.send(
            team.sender("main"), Draft(to="worker", body=body, kind="permission_response", in_reply_to=request.id)
        )
        await team.until_asked("worker", 2)
        assert team.texts("worker")[1] == "main says not on Fridays"
        [text] = team.texts("worker")[2:]
        assert "By the way." in text
        assert "permission_response" not in text
        assert team.transport.backlog("worker").messages == 0


async def test_the_lead_asks_an_agent_to_end_and_knows_when_it_has(tmp_path: Path) -> None:
    async with open_team("worker: [{text: never}]", tmp_path) as team:
        team.roster.join("main")
        team.start("worker", None)
        async with team.transport.open_inbox("main", 1) as inbox:
            mail = DeliverMail(inbox)
            answered = await team.member("main").ask(mail, "worker", ShutdownRequest(), ShutdownResponse)
        assert answered.body.accepted
        await ended(team)


async def ended(team: Team) -> None:
    await team.until(lambda: "worker" in team.ended)
    assert team.ended["worker"].reason == "shutdown"
