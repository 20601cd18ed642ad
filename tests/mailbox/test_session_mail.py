"""Mail of a session, as several processes open it over one directory."""

import attrs
import pytest

from coterie.clock import Clock
from coterie.mailbox.contract import DeadLetter, Delivery
from coterie.mailbox.envelope import Envelope, Recipient, Sender, new_message_id
from coterie.mailbox.errors import NotAllowed
from coterie.mailbox.router import OutgoingMessage
from coterie.mailbox.transports.file.log_reader import snapshot_pending
from coterie.mailbox.transports.file.log_segments import find_journals
from coterie.mailbox.transports.session_mail import SessionKeys, SessionMail
from coterie.session_directory import SessionDirectory, mail_directory


async def take_deliveries(mail: SessionMail, name: str) -> list[Delivery]:
    async with mail.files.open_inbox(name, 1) as inbox:
        return inbox.take_nowait()


async def test_opening_creates_no_file_and_durability_applies_in_every_process(session: SessionDirectory) -> None:
    """Also in a process without settings, such as `coterie mail send`."""
    before = sorted(session.directory.rglob("*"))
    with SessionMail.open(session, Clock()) as mail:
        assert not mail.roster.members()
        assert not mail.dead_letters.pending()
    assert sorted(session.directory.rglob("*")) == before, "opening creates no file"
    SessionDirectory.resume(session.id, mail="power")
    found = SessionDirectory.find(session.id)
    with SessionMail.open(found, Clock()) as mail:
        await mail.roster.join("worker")
        user = mail.human_sender()
        await mail.router().send(user, OutgoingMessage(to="worker", body="hello"))
        assert len(find_journals(mail_directory(found) / "worker")) == 1
        mail.clock.advance(1)
        later = mail.human_sender()
    assert (user.name, user.kind, user.session) == ("user", "human", session.id)
    assert user.incarnation < later.incarnation
    assert not find_journals(mail_directory(found) / "worker")
    assert SessionDirectory.resume(session.id).mail == "power"
    assert session.mail == "process"


async def test_mail_older_than_the_keys_is_accepted_and_an_altered_copy_is_not(
    session: SessionDirectory,
) -> None:
    lead = Sender(name="main", incarnation=1, session=session.id, kind="lead")
    with SessionMail.open(session, Clock(), SessionKeys.new()) as earlier, SessionMail.open(session, Clock()) as shell:
        await shell.roster.join("worker")
        await earlier.router().send(lead, OutgoingMessage(to="worker", body="of an earlier run"))
        await shell.router().send(shell.human_sender(), OutgoingMessage(to="worker", body="of a shell"))
        [old, _] = await take_deliveries(shell, "worker")
        untrusted: list[DeadLetter] = []
        believed = snapshot_pending(mail_directory(session))
        keys, report = SessionKeys.new(), untrusted.append
        with SessionMail.open(session, Clock(), keys, believed=believed, on_untrusted=report) as mail:
            await shell.files.send(attrs.evolve(old.envelope, body="forged", id=new_message_id()))
            await mail.router().send(lead, OutgoingMessage(to="worker", body="of this run"))
            bodies = [delivery.envelope.body for delivery in await take_deliveries(mail, "worker")]
        assert bodies == ["of an earlier run", "of a shell", "of this run"]
        assert [letter.reason for _, letter in shell.dead_letters.pending()] == ["bad_mac"]
    [letter] = untrusted
    assert (letter.mailbox, letter.detail) == ("worker", "'main' did not sign it")


async def test_bridged_message_is_signed_unless_it_claims_a_sender_of_this_session(
    session: SessionDirectory,
) -> None:
    with SessionMail.open(session, Clock(), SessionKeys.new()) as mail:
        await mail.roster.join("main")
        stranger = Sender(name="main", incarnation=1, session="another", kind="peer")
        letter = Envelope(
            sender=stranger, recipient=Recipient(name="main"), sequence=1, body="hello", created=mail.clock.now()
        )
        await mail.accept_inbound(letter)
        claiming = attrs.evolve(letter, sender=attrs.evolve(stranger, session=session.id), id=new_message_id())
        with pytest.raises(NotAllowed, match="came from outside"):
            await mail.accept_inbound(claiming)
        assert [delivery.envelope.id for delivery in await take_deliveries(mail, "main")] == [letter.id]


def test_session_secret_is_hidden_and_each_sender_has_its_own_key() -> None:
    keys = SessionKeys.new()
    lead = Sender(name="main", incarnation=1, session="s1", kind="lead")
    others = [attrs.evolve(lead, name="user"), attrs.evolve(lead, incarnation=2), attrs.evolve(lead, session="s2")]
    assert len({keys.key_of(sender) for sender in (lead, *others)}) == 1 + len(others)
    assert SessionKeys.from_hex(keys.to_hex()).key_of(lead) == keys.key_of(lead)
    assert SessionKeys.new().key_of(lead) != keys.key_of(lead)
    assert repr(keys) == "SessionKeys()"
