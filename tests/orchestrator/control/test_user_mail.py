"""Mail that the user has stored by a root, which signs it."""

from collections.abc import Iterator

import pytest

from coterie.clock import Clock
from coterie.mailbox.contract import DeadLetter, DeadReason
from coterie.mailbox.dead_letters import DeadLetterNumber
from coterie.mailbox.envelope import Envelope, Recipient, Sender
from coterie.mailbox.transports.session_mail import SessionKeys, SessionMail
from coterie.orchestrator.control.requests import (
    DeliveryStatuses,
    MailAnswer,
    NotStored,
    ReleaseHeldMessage,
    ResendDeadLetter,
    SendMail,
)
from coterie.orchestrator.control.user_mail import handle_mail_request
from coterie.session_directory import SessionDirectory


@pytest.fixture
def office(session: SessionDirectory) -> Iterator[SessionMail]:
    """The signed mail of a session, as its root opens it."""
    with SessionMail.open(session, Clock(), SessionKeys.new()) as office:
        yield office


def make_message(office: SessionMail, sender: str = "main", session: str | None = None) -> Envelope:
    return Envelope(
        sender=Sender(name=sender, incarnation=1, session=session or office.session.id, kind="peer"),
        recipient=Recipient(name="worker"),
        sequence=1,
        body=f"words of {sender}",
        created=office.clock.now(),
    )


def add_dead_letter(office: SessionMail, reason: DeadReason) -> DeadLetterNumber:
    envelope = make_message(office)
    office.dead_letters.add(
        DeadLetter(reason=reason, detail="", mailbox="worker", at=0.0, envelope=envelope, raw=envelope.to_bytes())
    )
    return office.dead_letters.history()[-1].number


async def read(office: SessionMail) -> list[str]:
    async with office.files.open_inbox("worker", 1) as inbox:
        return [delivery.envelope.body for delivery in inbox.take_nowait()]


def recipients(answer: MailAnswer) -> list[str]:
    assert isinstance(answer, DeliveryStatuses), answer
    return [fate.recipient for fate in answer.fates if fate.receipt is not None]


async def test_sent_resent_and_released_mail_is_trusted(office: SessionMail) -> None:
    await office.roster.join("worker")
    held = make_message(office, "stranger", session="another")
    await office.held.hold(held)
    assert recipients(await handle_mail_request(office, SendMail(to="*", body="words of the user"))) == ["worker"]
    assert recipients(
        await handle_mail_request(office, ResendDeadLetter(number=add_dead_letter(office, "expired")))
    ) == ["worker"]
    assert recipients(await handle_mail_request(office, ReleaseHeldMessage(id=held.id))) == ["worker"]
    assert await read(office) == ["words of the user", "words of main", "words of stranger"]
    assert office.dead_letters.pending() == []


async def test_held_message_with_a_forged_session_is_not_released(office: SessionMail) -> None:
    await office.roster.join("worker")
    forged = make_message(office, "main")
    await office.held.hold(forged)
    answer = await handle_mail_request(office, ReleaseHeldMessage(id=forged.id))
    assert isinstance(answer, NotStored)
    assert "came from outside" in answer.reason
    assert await read(office) == []
    assert [each.id for each in await office.held.messages()] == [forged.id]
