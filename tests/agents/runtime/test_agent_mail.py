"""Mail of agents that share a process: sent by queue, and never lost, duplicated or out of order."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.runtime.setup.agent_mail import AgentMail, ProcessMail, open_process_mail
from coterie.clock import Clock
from coterie.mailbox.envelope import MessageId, Sender
from coterie.mailbox.merged_inbox import MergedInbox
from coterie.mailbox.message_bodies import ShutdownRequest, TaskNotification
from coterie.mailbox.router import OutgoingMessage, Router, SendResult
from coterie.mailbox.transports.file.transport import FileTransport
from coterie.mailbox.transports.session_mail import SessionKeys
from coterie.session_directory import SessionDirectory
from tests.agents.in_process_team import LocalMail, NoKeys


@pytest.fixture
async def mailrooms(session: SessionDirectory) -> AsyncIterator[ProcessMail]:
    """Mail of one process, in a session with two agents."""
    with open_process_mail(session, Clock(), SessionKeys.new()) as opened:
        for name in ("ann", "bob"):
            await opened.session_mail.roster.join(name)
        yield opened


async def send(mailrooms: ProcessMail, body: str, **members: str) -> str:
    """Send a message from ann to bob; return the transport."""
    ann = Sender(name="ann", incarnation=1, session=mailrooms.session_mail.session.id, kind="peer")
    draft = OutgoingMessage(**{"to": "bob", "body": body} | members)  # type: ignore[arg-type]  # the names of its fields
    [posted] = await mailrooms.router.send(ann, draft)
    return way(posted)


def way(posted: SendResult) -> str:
    """Return the transport of a sent message."""
    assert posted.receipt is not None
    return posted.receipt.transport


async def read(room: AgentMail) -> list[str]:
    """Take and acknowledge the pending messages of *room* as the agent does."""
    inbox = room.messaging._inbox  # noqa: SLF001 - what the agent reads from
    envelopes = [delivery.envelope for delivery in inbox.take_nowait()]
    await inbox.acknowledge([envelope.id for envelope in envelopes])
    return [envelope.body for envelope in envelopes]


async def test_mail_within_a_process_uses_the_queue_and_other_mail_a_file(mailrooms: ProcessMail) -> None:
    assert await send(mailrooms, "early") == "file"
    async with mailrooms.open((), name="bob", incarnation=1) as room:
        assert await read(room) == ["early"]
        assert await send(mailrooms, "near") == "queue"
        assert await read(room) == ["near"]
    assert await send(mailrooms, "late") == "file"


async def test_no_message_overtakes_an_earlier_one_that_is_in_a_file(mailrooms: ProcessMail) -> None:
    await send(mailrooms, "one")
    async with mailrooms.open((), name="bob", incarnation=1) as room:
        assert await send(mailrooms, "two") == "file"
        assert await read(room) == ["one", "two"]
        assert await send(mailrooms, "three") == "queue"
        assert await send(mailrooms, "four") == "queue"
        assert await read(room) == ["three", "four"]


async def test_unread_mail_moves_to_files_when_the_agent_ends(mailrooms: ProcessMail) -> None:
    async with mailrooms.open((), name="bob", incarnation=1) as room:
        await send(mailrooms, "read")
        assert await read(room) == ["read"]
        await send(mailrooms, "taken")
        assert room.messaging._inbox.take_nowait()  # noqa: SLF001 - and not acknowledged
        await send(mailrooms, "untouched")
    assert mailrooms.session_mail.files.backlog("bob").messages == 2
    assert await send(mailrooms, "late") == "file"
    async with mailrooms.open((), name="bob", incarnation=2) as room:
        assert await read(room) == ["taken", "untouched", "late"]
    assert mailrooms.session_mail.dead_letters.pending() == []


async def test_a_report_outlives_the_process(mailrooms: ProcessMail) -> None:
    report = TaskNotification(status="completed", summary="The task is done.")
    async with mailrooms.open((), name="bob", incarnation=1):
        assert await send(mailrooms, report.to_body(), kind=report.kind) == "file"
        assert mailrooms.session_mail.files.backlog("bob").messages == 1


async def test_mail_with_authority_is_for_one_incarnation_and_never_in_a_file(mailrooms: ProcessMail) -> None:
    office = mailrooms.session_mail
    request = ShutdownRequest(reason="enough")
    async with mailrooms.open((), name="bob", incarnation=1):
        [posted] = await mailrooms.router.send(
            office.human_sender(), OutgoingMessage(to="bob", body=request.to_body(), kind=request.kind)
        )
        assert way(posted) == "queue"
    assert office.files.backlog("bob").messages == 0
    async with mailrooms.open((), name="bob", incarnation=2) as room:
        assert await read(room) == []


async def test_mail_that_the_files_refuse_becomes_a_dead_letter(mailrooms: ProcessMail) -> None:
    async with mailrooms.open((), name="bob", incarnation=1):
        await send(mailrooms, "unread")
        await mailrooms.session_mail.roster.set_state("bob", "ended")
    [(_, letter)] = mailrooms.session_mail.dead_letters.pending()
    assert (letter.reason, letter.mailbox) == ("refused", "bob")
    assert "has ended" in letter.detail


SCOUT = Sender(name="scout", incarnation=1, session="s", kind="peer")


@attrs.define(eq=False)
class Parent:
    """Mail of an agent that waits for reports, in a queue and in a file."""

    mail: Messaging
    router: Router
    reports: list[str] = attrs.field(factory=list)

    async def wait(self, report: str) -> None:
        """Wait for the report with this id, and record it."""
        envelope = await self.mail.wait_for_report(MessageId(report))
        self.reports.append(TaskNotification.from_body(envelope.body).summary)

    async def send(self, report: str) -> None:
        body = TaskNotification(status="completed", summary=report)
        message = OutgoingMessage(to="main", body=body.to_body(), kind=body.kind, id=MessageId(report))
        await self.router.send(SCOUT, message)

    def shown(self) -> str:
        """Return the text that the model of the agent would get now."""
        return b"".join(self.mail.add_blocks(None, ()).blocks).decode()  # type: ignore[arg-type]  # the agent is not used


@asynccontextmanager
async def open_parent(directory: Path) -> AsyncIterator[Parent]:
    post = LocalMail()
    for name in ("main", "scout"):
        post.roster.join(name)
    files = FileTransport(directory / "mail", post.roster, None, Clock(), post.add_dead_letter)
    try:
        with trio.fail_after(10):
            async with post.transport.open_inbox("main", 1) as local, files.open_inbox("main", 1) as other:
                mail = Messaging(MergedInbox("main", local, (other,), post.add_dead_letter))
                yield Parent(mail, Router(post.roster, NoKeys(), post.transport, files, local_names=set()))
    finally:
        files.close()


async def test_concurrent_waits_each_get_their_own_report(tmp_path: Path) -> None:
    """The waits share one mailbox, whose file only one task can watch. One report arrives before its wait."""
    async with open_parent(tmp_path) as parent:
        await parent.send("early")
        await parent.mail.receive()
        async with trio.open_nursery() as nursery:
            for report in ("early", "a", "b", "c"):
                nursery.start_soon(parent.wait, report)
            await trio.testing.wait_all_tasks_blocked()
            await parent.router.send(SCOUT, OutgoingMessage(to="main", body="Still reading."))
            for report in ("c", "b", "a"):
                await parent.send(report)
        assert sorted(parent.reports) == ["a", "b", "c", "early"]
        text = parent.shown()
        assert "Still reading." in text
        assert "task-notification" not in text


async def test_cancelled_wait_leaves_its_report_to_the_conversation(tmp_path: Path) -> None:
    async with open_parent(tmp_path) as parent, trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def give_up() -> None:
            with scope:
                await parent.wait("first")

        nursery.start_soon(give_up)
        nursery.start_soon(parent.wait, "second")
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        for report in ("first", "second"):
            await parent.send(report)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await parent.mail.wait_for_work()
        assert parent.reports == ["second"]
        assert "first" in parent.shown()


async def test_report_during_a_cancellation_is_not_lost(tmp_path: Path) -> None:
    async with open_parent(tmp_path) as parent:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(parent.wait, "late")
                await trio.testing.wait_all_tasks_blocked()
                await parent.send("late")
                scope.cancel()
                assert parent.shown() == ""
        assert parent.reports == []
        with trio.move_on_after(1):
            await parent.mail.wait_for_work()
        assert "late" in parent.shown()
