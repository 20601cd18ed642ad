"""Waiting for reports of subagents: concurrent waits, other mail, and cancellation."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio
import trio.testing

from coterie.agents.layers.layer7_messaging import Messaging
from coterie.clock import Clock
from coterie.mailbox.contract import DeadLetter
from coterie.mailbox.envelope import MessageId, Sender
from coterie.mailbox.merged_inbox import MergedInbox
from coterie.mailbox.message_bodies import TaskNotification
from coterie.mailbox.roster import LocalRoster
from coterie.mailbox.router import OutgoingMessage, Router
from coterie.mailbox.transports.file.transport import FileTransport
from coterie.mailbox.transports.in_process.transport import QueueTransport
from tests.agents.in_process_team import NoKeys

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
        """Send the report with this id."""
        body = TaskNotification(status="completed", summary=report)
        message = OutgoingMessage(to="main", body=body.to_body(), kind=body.kind, id=MessageId(report))
        await self.router.send(SCOUT, message)

    def shown(self) -> str:
        """Return the text that the model of the agent would get now."""
        return b"".join(self.mail.add_blocks(None, ()).blocks).decode()  # type: ignore[arg-type]  # the agent is not used


@asynccontextmanager
async def open_parent(directory: Path) -> AsyncIterator[Parent]:
    roster, dead = LocalRoster(), list[DeadLetter]()
    for name in ("main", "scout"):
        roster.join(name)
    queue = QueueTransport(roster, None, Clock(), dead.append)
    files = FileTransport(directory / "mail", roster, None, Clock(), dead.append)
    try:
        with trio.fail_after(10):
            async with queue.open_inbox("main", 1) as local, files.open_inbox("main", 1) as other:
                mail = Messaging(MergedInbox("main", local, (other,), dead.append))
                yield Parent(mail, Router(roster, NoKeys(), queue, files, local_names=set()))
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
