"""The mail of a session, opened by several processes' worth of post offices over one directory."""

from pathlib import Path

import attrs
import pytest

from coterie.clock import Clock
from coterie.mailbox.contract import Delivery
from coterie.mailbox.envelope import Sender
from coterie.mailbox.errors import NotAllowed, UnknownRecipient
from coterie.mailbox.queue import QueueTransport
from coterie.mailbox.router import Draft
from coterie.orchestrator.post_office import PostOffice
from coterie.orchestrator.session import Session


@attrs.frozen
class OneKey:
    """Everybody signs with the same key."""

    key: bytes

    def key_of(self, _sender: Sender) -> bytes:
        """The key, whoever asks."""
        return self.key


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
    keys = OneKey(b"k" * 32)
    with PostOffice.of(session, Clock(), keys) as signing, PostOffice.of(session, Clock()) as shell:
        await shell.roster.join("worker")
        lead = Sender(name="main", incarnation=1, session=session.id, kind="lead")
        await signing.router().send(lead, Draft(to="worker", body="signed"))
        await shell.router().send(lead, Draft(to="worker", body="forged"))
        assert [delivery.envelope.body for delivery in await taken_by(signing, "worker")] == ["signed"]
        [(_, letter)] = shell.dead.letters()
    assert letter.reason == "bad_mac"
