"""Mail that the user has stored by a root, which signs it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.clock import Clock
from coterie.mailbox.contract import DeadLetter, DeadReason
from coterie.mailbox.dead_letters import LetterNumber
from coterie.mailbox.envelope import Envelope, Recipient, Sender
from coterie.mailbox.ids import MessageId
from coterie.orchestrator.control_socket.requests import (
    Fates,
    MailAnswer,
    MailRequest,
    NotStored,
    PostMail,
    ReleaseLetter,
    ResendLetter,
)
from coterie.orchestrator.keys import SessionKeys
from coterie.orchestrator.post_office import PostOffice
from coterie.orchestrator.session import Session
from coterie.orchestrator.user_mail import serve_mail


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostOffice]:
    """The mail of a session as its root has it."""
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    session = Session.create(tmp_path, Clock(), task="t", model="m")
    with PostOffice.of(session, Clock(), SessionKeys.new()) as office:
        yield office


def letter(office: PostOffice, sender: str = "main", session: str | None = None) -> Envelope:
    return Envelope(
        sender=Sender(name=sender, incarnation=1, session=session or office.session.id, kind="peer"),
        recipient=Recipient(name="worker"),
        sequence=1,
        body=f"words of {sender}",
        created=office.clock.now(),
    )


def bury(office: PostOffice, reason: DeadReason) -> LetterNumber:
    envelope = letter(office)
    office.dead.bury(
        DeadLetter(reason=reason, detail="", mailbox="worker", at=0.0, envelope=envelope, raw=envelope.to_bytes())
    )
    return office.dead.history()[-1].number


async def read(office: PostOffice) -> list[str]:
    async with office.files.open_inbox("worker", 1) as inbox:
        return [delivery.envelope.body for delivery in inbox.take_nowait()]


def recipients(answer: MailAnswer) -> list[str]:
    assert isinstance(answer, Fates), answer
    return [fate.recipient for fate in answer.fates if fate.receipt is not None]


async def test_what_is_posted_resent_and_released_is_believed(office: PostOffice) -> None:
    await office.roster.join("worker")
    held = letter(office, "stranger", session="another")
    await office.held.hold(held)
    assert recipients(await serve_mail(office, PostMail(to="*", body="words of the user"))) == ["worker"]
    assert recipients(await serve_mail(office, ResendLetter(number=bury(office, "expired")))) == ["worker"]
    assert recipients(await serve_mail(office, ReleaseLetter(id=held.id))) == ["worker"]
    assert await read(office) == ["words of the user", "words of main", "words of stranger"]
    assert office.dead.letters() == []


async def test_a_held_letter_that_claims_to_be_of_this_session_is_not_released(office: PostOffice) -> None:
    await office.roster.join("worker")
    forged = letter(office, "main")
    await office.held.hold(forged)
    answer = await serve_mail(office, ReleaseLetter(id=forged.id))
    assert isinstance(answer, NotStored)
    assert "came from outside" in answer.reason
    assert await read(office) == []
    assert [each.id for each in await office.held.letters()] == [forged.id]


async def test_what_cannot_be_stored_is_told_in_one_line(office: PostOffice) -> None:
    await office.roster.join("worker")
    forged = bury(office, "bad_mac")
    whose = f"nobody proved that 'main' wrote dead letter {forged}; if it is true, say it with `mail send`"
    cases: dict[MailRequest, str] = {
        PostMail(to="wroker", body="?"): "there is no 'wroker'; did you mean worker?",
        PostMail(to="a/b", body="?"): "'a/b' is not a name: a name has letters a-z, digits, - and _, and begins with a"
        " letter or digit",
        ResendLetter(number=forged): whose,
        ResendLetter(number=7): "there is no dead letter 7; `coterie mail dead` lists them",
        ReleaseLetter(id=MessageId("none")): "no letter 'none' is held",
    }
    for request, reason in cases.items():
        assert await serve_mail(office, request) == NotStored(reason=reason, is_for_user=True)


async def test_a_disk_that_refuses_is_not_for_the_user_to_mend(office: PostOffice) -> None:
    await office.roster.join("worker")
    office.directory.mkdir()
    (office.directory / "worker").write_text("no directory")
    answer = await serve_mail(office, PostMail(to="worker", body="words"))
    assert isinstance(answer, NotStored)
    assert not answer.is_for_user
