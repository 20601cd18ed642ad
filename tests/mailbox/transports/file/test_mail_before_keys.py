"""Mail from before the keys were made: what waited then is believed, and nothing that takes its place."""

import shutil
from pathlib import Path

import attrs
import pytest

from coterie.clock import Clock
from coterie.files import frame_record
from coterie.mailbox.envelope import Envelope, Sender, new_message_id
from coterie.mailbox.errors import MailboxFailed
from coterie.mailbox.transports.file.pending_digests import snapshot_pending
from coterie.mailbox.transports.file.transport import FileTransport
from tests.mailbox.file_mail import DeadLetterList, Names, envelope, take_sequences, transport

KEY = b"of this run"
SMALL = 1024
"""Bytes of a segment: two or three records."""


class OneKey:
    """Everybody has the same key."""

    def key_of(self, _sender: Sender) -> bytes:
        """As `Keys.key_of`."""
        return KEY


def begin(directory: Path, graveyard: DeadLetterList) -> FileTransport:
    """A transport of a run that begins now."""
    believed = snapshot_pending(directory)
    return FileTransport(
        directory, Names(), OneKey(), Clock(), graveyard.add, segment_bytes=SMALL, trusted=dict(believed)
    )


def forged(old: Envelope) -> Envelope:
    """The same message with other words of the same length, so that it fits in its place."""
    return attrs.evolve(old, body="x" * len(old.body))


async def test_what_waited_is_delivered_and_what_came_unsigned_later_is_buried(tmp_path: Path) -> None:
    earlier = transport(tmp_path, segment_bytes=SMALL)
    for number in range(1, 11):
        await earlier.send(envelope(number).sign(b"of an earlier run") if number % 2 else envelope(number))
    async with earlier.open_inbox("ada", 1) as inbox:
        first = [delivery.envelope.id for delivery in inbox.take_nowait(4)]
        await inbox.acknowledge(first)
    graveyard = DeadLetterList()
    post = begin(tmp_path, graveyard)
    await earlier.send(envelope(11))
    await post.send(envelope(12).sign(KEY))
    async with post.open_inbox("ada", 2) as inbox:
        assert take_sequences(inbox) == [5, 6, 7, 8, 9, 10, 12]
    assert graveyard.reasons() == ["bad_mac"]


async def test_it_is_believed_by_a_later_reader_when_its_first_segments_are_gone(tmp_path: Path) -> None:
    earlier, graveyard = transport(tmp_path, segment_bytes=SMALL), DeadLetterList()
    for number in range(1, 11):
        await earlier.send(envelope(number))
    post = begin(tmp_path, graveyard)
    async with post.open_inbox("ada", 1) as inbox:
        taken = [delivery.envelope.id for delivery in inbox.take_nowait()]
        await inbox.acknowledge(taken[:8])
    assert not (tmp_path / "ada" / "000001.log").exists()
    async with post.open_inbox("ada", 2) as inbox:
        assert take_sequences(inbox) == [9, 10]
    assert graveyard.reasons() == []


async def test_what_is_written_over_it_is_buried(tmp_path: Path) -> None:
    old, graveyard = envelope(1), DeadLetterList()
    await transport(tmp_path).send(old)
    post = begin(tmp_path, graveyard)
    (tmp_path / "ada" / "000001.log").write_bytes(frame_record(forged(old).to_bytes()))
    async with post.open_inbox("ada", 1) as inbox:
        assert take_sequences(inbox) == []
    assert graveyard.reasons() == ["bad_mac"]


async def test_what_stands_in_another_log_that_is_put_there_is_buried(tmp_path: Path) -> None:
    graveyard = DeadLetterList()
    for number in (1, 2, 3):
        await transport(tmp_path).send(envelope(number))
    post = begin(tmp_path, graveyard)
    async with post.open_inbox("ada", 1) as inbox:
        shutil.rmtree(tmp_path / "ada")
        await transport(tmp_path).send(attrs.evolve(envelope(4), id=new_message_id()))
        assert take_sequences(inbox) == []
    assert graveyard.reasons() == ["bad_mac"]


async def test_only_what_waits_is_noted_and_its_reader_is_not_disturbed(tmp_path: Path) -> None:
    post = transport(tmp_path)
    await post.send(envelope(1))
    async with post.open_inbox("ada", 1) as inbox:
        [read] = inbox.take_nowait()
        await post.send(envelope(2))
        with (tmp_path / "ada" / "000001.log").open("ab") as log:
            log.write(b"\nno record\n")
        await inbox.acknowledge([read.envelope.id])
        noted = snapshot_pending(tmp_path)
        assert take_sequences(inbox) == [2]
    assert {name: len(digests) for name, digests in noted.items()} == {"ada": 1}


def test_where_there_is_no_mail_nothing_is_noted(tmp_path: Path) -> None:
    assert snapshot_pending(tmp_path / "mail") == {}


def test_mail_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ada" / "000001.log").mkdir(parents=True)
    with pytest.raises(MailboxFailed, match="cannot be read"):
        snapshot_pending(tmp_path)
