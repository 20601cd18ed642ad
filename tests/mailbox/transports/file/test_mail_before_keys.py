"""Mail from before the keys existed: pending messages are trusted, replaced ones are not."""

import shutil
from pathlib import Path

import attrs
import pytest

from coterie.clock import Clock
from coterie.files import frame_record
from coterie.mailbox.errors import MailboxFailed
from coterie.mailbox.transports.file.log_reader import snapshot_pending
from coterie.mailbox.transports.file.transport import FileTransport
from tests.mailbox.file_mail import KEY, DeadLetterList, Names, OneKey, envelope, take_sequences, transport

SMALL = 1024
"""Size of a segment: two or three records."""


def begin(directory: Path, dead_letters: DeadLetterList) -> FileTransport:
    """Open a transport of a new run."""
    believed = snapshot_pending(directory)
    return FileTransport(
        directory, Names(), OneKey(), Clock(), dead_letters.add, segment_bytes=SMALL, trusted=dict(believed)
    )


async def test_pending_mail_is_delivered_and_later_unsigned_mail_is_not(tmp_path: Path) -> None:
    earlier = transport(tmp_path, segment_bytes=SMALL)
    for number in range(1, 11):
        await earlier.send(envelope(number).sign(b"of an earlier run") if number % 2 else envelope(number))
    async with earlier.open_inbox("ada", 1) as inbox:
        first = [delivery.envelope.id for delivery in inbox.take_nowait(4)]
        await inbox.acknowledge(first)
    dead_letters = DeadLetterList()
    mail = begin(tmp_path, dead_letters)
    await earlier.send(envelope(11))
    await mail.send(envelope(12).sign(KEY))
    async with mail.open_inbox("ada", 2) as inbox:
        taken = inbox.take_nowait()
        assert [delivery.envelope.sequence for delivery in taken] == [5, 6, 7, 8, 9, 10, 12]
        await inbox.acknowledge([delivery.envelope.id for delivery in taken[:4]])
    assert not (tmp_path / "ada" / "000001.log").exists(), "a deleted segment changes nothing"
    async with mail.open_inbox("ada", 3) as inbox:
        assert take_sequences(inbox) == [9, 10, 12]
    assert dead_letters.reasons() == ["bad_mac"]


@pytest.mark.parametrize("is_overwritten", [True, False])
async def test_replaced_mail_is_dead_lettered(tmp_path: Path, *, is_overwritten: bool) -> None:
    dead_letters, old = DeadLetterList(), envelope(1)
    await transport(tmp_path).send(old)
    mail = begin(tmp_path, dead_letters)
    async with mail.open_inbox("ada", 1) as inbox:
        if is_overwritten:
            # Of the same length, so that it fits in its place.
            forged = attrs.evolve(old, body="x" * len(old.body))
            (tmp_path / "ada" / "000001.log").write_bytes(frame_record(forged.to_bytes()))
        else:
            shutil.rmtree(tmp_path / "ada")
            await transport(tmp_path).send(envelope(4))
        assert take_sequences(inbox) == []
    assert dead_letters.reasons() == ["bad_mac"]


async def test_snapshot_has_only_pending_mail_and_takes_no_lock(tmp_path: Path) -> None:
    mail = transport(tmp_path)
    await mail.send(envelope(1))
    async with mail.open_inbox("ada", 1) as inbox:
        [read] = inbox.take_nowait()
        await mail.send(envelope(2))
        with (tmp_path / "ada" / "000001.log").open("ab") as log:
            log.write(b"\nno record\n")
        await inbox.acknowledge([read.envelope.id])
        noted = snapshot_pending(tmp_path)
        assert take_sequences(inbox) == [2]
    assert {name: len(digests) for name, digests in noted.items()} == {"ada": 1}


def test_snapshot_of_no_mail_is_empty_and_of_unreadable_mail_an_error(tmp_path: Path) -> None:
    assert snapshot_pending(tmp_path / "mail") == {}
    (tmp_path / "ada" / "000001.log").mkdir(parents=True)
    with pytest.raises(MailboxFailed, match="cannot be read"):
        snapshot_pending(tmp_path)
