"""Mail of agents that share a process: sent by queue, and never lost, duplicated or out of order."""

from collections.abc import AsyncIterator

import pytest

from coterie.agents.runtime.setup.agent_mail import AgentMail, ProcessMail, open_process_mail
from coterie.clock import Clock
from coterie.mailbox.envelope import Sender
from coterie.mailbox.message_bodies import ShutdownRequest, TaskNotification
from coterie.mailbox.router import OutgoingMessage, SendResult
from coterie.mailbox.transports.session_mail import SessionKeys
from coterie.session_directory import SessionDirectory


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
