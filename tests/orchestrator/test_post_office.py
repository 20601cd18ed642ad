"""The mail of a session, opened by several processes' worth of post offices over one directory."""

from pathlib import Path

import attrs
import pytest

from coterie.agents.events import Event, Noticed
from coterie.clock import Clock
from coterie.mailbox.contract import Delivery
from coterie.mailbox.envelope import Envelope, Recipient, Sender
from coterie.mailbox.errors import NotAllowed, UnknownRecipient
from coterie.mailbox.file import note_waiting
from coterie.mailbox.file.segments import find_journals
from coterie.mailbox.ids import new_message_id
from coterie.mailbox.queue import QueueTransport
from coterie.mailbox.router import Draft
from coterie.orchestrator.keys import SessionKeys
from coterie.orchestrator.post_office import PostOffice, mail_directory
from coterie.orchestrator.session import Session


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    return Session.create(tmp_path, Clock(), task="t", model="m")


async def taken_by(office: PostOffice, name: str) -> list[Delivery]:
    async with office.files.open_inbox(name, 1) as inbox:
        return inbox.take_nowait()


async def test_what_one_office_sends_another_one_of_the_session_reads(session: Session) -> None:
    with PostOffice.of(session, Clock()) as here, PostOffice.of(session, Clock()) as there:
        await here.roster.join("worker")
        await here.router().send(here.human(), Draft(to="worker", body="hello"))
        [delivery] = await taken_by(there, "worker")
    assert delivery.envelope.body == "hello"
    assert delivery.envelope.sender == Sender(
        name="user", incarnation=delivery.envelope.sender.incarnation, session=session.id, kind="human"
    )


async def test_mail_is_as_durable_as_the_session_says_in_every_process(session: Session) -> None:
    """Also in one that has no settings, such as the shell of `coterie mail send`."""
    Session.resume(session.id, mail="power")
    found = Session.find(session.id)
    with PostOffice.of(found, Clock()) as office:
        await office.roster.join("worker")
        await office.router().send(office.human(), Draft(to="worker", body="hello"))
        assert len(find_journals(mail_directory(found) / "worker")) == 1
    assert not find_journals(mail_directory(found) / "worker")
    assert Session.resume(session.id).mail == "power"
    assert session.mail == "process"


def test_opening_it_makes_nothing_on_the_disk(session: Session) -> None:
    before = sorted(session.directory.rglob("*"))
    with PostOffice.of(session, Clock()) as office:
        assert not office.roster.members()
        assert not office.dead.letters()
    assert sorted(session.directory.rglob("*")) == before


async def test_the_human_has_no_mailbox(session: Session) -> None:
    with PostOffice.of(session, Clock()) as office:
        await office.roster.join("worker")
        worker = Sender(name="worker", incarnation=1, session=session.id, kind="peer")
        with pytest.raises(UnknownRecipient):
            await office.router().send(worker, Draft(to="user", body="answer"))
        assert not await office.router().send(worker, Draft(to="*", body="all of you"))


def test_every_command_of_the_human_is_a_later_start(session: Session) -> None:
    clock = Clock()
    with PostOffice.of(session, clock) as office:
        first = office.human()
        clock.advance(1)
        assert office.human().incarnation > first.incarnation


async def test_authority_reaches_the_agents_of_the_own_process_alone(session: Session) -> None:
    with PostOffice.of(session, Clock()) as office:
        await office.roster.join("near")
        await office.roster.join("far")
        queue = QueueTransport(office.roster, None, Clock(), office.dead.bury)
        router = office.router(queue)
        router.locals.add("near")
        await router.send(office.human(), Draft(to="near", body="{}", kind="shutdown_request"))
        with pytest.raises(NotAllowed, match="inside a process only"):
            await router.send(office.human(), Draft(to="far", body="{}", kind="shutdown_request"))
        assert queue.backlog("near").messages == 1
        assert not await taken_by(office, "far")


async def test_with_keys_mail_is_signed_and_what_is_not_becomes_a_dead_letter(session: Session) -> None:
    keys = SessionKeys.new()
    with PostOffice.of(session, Clock(), keys) as signing, PostOffice.of(session, Clock()) as shell:
        await shell.roster.join("worker")
        lead = Sender(name="main", incarnation=1, session=session.id, kind="lead")
        await signing.router().send(lead, Draft(to="worker", body="signed"))
        await shell.router().send(lead, Draft(to="worker", body="forged"))
        assert [delivery.envelope.body for delivery in await taken_by(signing, "worker")] == ["signed"]
        [(_, letter)] = shell.dead.letters()
    assert letter.reason == "bad_mac"


async def test_mail_that_waited_when_keys_were_made_is_believed_and_a_copy_with_other_words_is_not(
    session: Session,
) -> None:
    lead = Sender(name="main", incarnation=1, session=session.id, kind="lead")
    with PostOffice.of(session, Clock(), SessionKeys.new()) as earlier, PostOffice.of(session, Clock()) as shell:
        await shell.roster.join("worker")
        await earlier.router().send(lead, Draft(to="worker", body="of an earlier run"))
        await shell.router().send(shell.human(), Draft(to="worker", body="of a shell"))
        [old, _] = await taken_by(shell, "worker")
        told: list[Event] = []
        believed = note_waiting(mail_directory(session))
        with PostOffice.of(session, Clock(), SessionKeys.new(), believed=believed, tell=told.append) as office:
            await shell.files.send(attrs.evolve(old.envelope, body="forged", id=new_message_id()))
            await office.router().send(lead, Draft(to="worker", body="of this run"))
            bodies = [delivery.envelope.body for delivery in await taken_by(office, "worker")]
        assert bodies == ["of an earlier run", "of a shell", "of this run"]
        assert [letter.reason for _, letter in shell.dead.letters()] == ["bad_mac"]
    reason = "a message is not believed: 'main' did not sign it"
    assert told == [Noticed(source="the mailbox of worker", reason=reason)]


async def test_a_letter_of_another_session_is_vouched_for_and_one_that_claims_to_be_of_this_is_not(
    session: Session,
) -> None:
    with PostOffice.of(session, Clock(), SessionKeys.new()) as office:
        await office.roster.join("main")
        stranger = Sender(name="main", incarnation=1, session="another", kind="peer")
        letter = Envelope(
            sender=stranger, recipient=Recipient(name="main"), sequence=1, body="hello", created=office.clock.now()
        )
        await office.take_in(letter)
        claiming = attrs.evolve(letter, sender=attrs.evolve(stranger, session=session.id), id=new_message_id())
        with pytest.raises(NotAllowed, match="came from outside"):
            await office.take_in(claiming)
        assert [delivery.envelope.id for delivery in await taken_by(office, "main")] == [letter.id]


def test_the_secret_of_a_session_is_not_shown_and_every_sender_has_another_key() -> None:
    keys = SessionKeys.new()
    lead = Sender(name="main", incarnation=1, session="s1", kind="lead")
    others = [attrs.evolve(lead, name="user"), attrs.evolve(lead, incarnation=2), attrs.evolve(lead, session="s2")]
    assert len({keys.key_of(sender) for sender in (lead, *others)}) == 1 + len(others)
    assert SessionKeys.from_hex(keys.to_hex()).key_of(lead) == keys.key_of(lead)
    assert SessionKeys.new().key_of(lead) != keys.key_of(lead)
    assert repr(keys) == "SessionKeys()"
