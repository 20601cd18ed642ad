"""Mail that the user has stored by a root, which signs it."""

from collections.abc import Iterator

import pytest

from coterie.clock import Clock
from coterie.mailbox.transports.session_mail import SessionKeys, SessionMail
from coterie.orchestrator.control import requests
from coterie.orchestrator.control.user_mail import handle_mail_request
from coterie.session_directory import MAIN, SessionDirectory
from tests.orchestrator.mail_writer import MailWriter


@pytest.fixture
def office(session: SessionDirectory) -> Iterator[SessionMail]:
    """The signed mail of a session, as its root opens it."""
    with SessionMail.open(session, Clock(), SessionKeys.new()) as office:
        yield office


async def read(office: SessionMail) -> list[str]:
    async with office.files.open_inbox("worker", 1) as inbox:
        return [delivery.envelope.body for delivery in inbox.take_nowait()]


async def test_sent_resent_and_released_mail_is_trusted(office: SessionMail) -> None:
    await office.roster.join("worker")
    writer = MailWriter(office.session)
    writer.add_dead_letter(writer.make_message(MAIN, "worker", "words of main"))
    held = writer.make_message("stranger", "worker", "words of a stranger", session="another")
    await office.held.hold(held)
    for request in (
        requests.SendMail(to="*", body="words of the user"),
        requests.ResendDeadLetter(number=office.dead_letters.history()[-1].number),
        requests.ReleaseHeldMessage(id=held.id),
    ):
        answer = await handle_mail_request(office, request)
        assert isinstance(answer, requests.DeliveryStatuses)
        assert [fate.recipient for fate in answer.fates if fate.receipt is not None] == ["worker"]
    assert await read(office) == ["words of the user", "words of main", "words of a stranger"]
    assert office.dead_letters.pending() == []


async def test_held_message_with_a_forged_session_is_not_released(office: SessionMail) -> None:
    await office.roster.join("worker")
    forged = MailWriter(office.session).make_message("spy", "worker", "words of main")
    await office.held.hold(forged)
    answer = await handle_mail_request(office, requests.ReleaseHeldMessage(id=forged.id))
    assert isinstance(answer, requests.NotStored)
    assert "came from outside" in answer.reason
    assert await read(office) == []
    assert [each.id for each in await office.held.messages()] == [forged.id]
