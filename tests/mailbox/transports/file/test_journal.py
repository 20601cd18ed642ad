"""Receipts survive a power cut: records that a log loses are restored from the journals of its writers."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from coterie.files import BlockFile, Operation, file_faults
from coterie.mailbox.errors import MailboxFailed
from coterie.mailbox.transports.file.fast_stat import fast_fstat, fast_stat
from coterie.mailbox.transports.file.journal import recover
from coterie.mailbox.transports.file.log_segments import find_journals, segment_path
from coterie.mailbox.transports.file.transport import FileTransport
from tests.examples import examples
from tests.mailbox.file_mail import DeadLetterList, Disk, FailsFrom, Names, crash, envelope, take_sequences, transport
from tests.seeded_faults import SeededFaults

FAILED = r"bytes were written|Input/output error"


@pytest.fixture
def disk() -> Iterator[Disk]:
    """A disk that can lose unsynced bytes."""
    disk = Disk()
    with file_faults(disk):
        yield disk


def durable(root: Path, dead_letters: DeadLetterList | None = None, *, segment_bytes: int = 200_000) -> FileTransport:
    return attrs.evolve(
        transport(root, dead_letters, durability="power", segment_bytes=segment_bytes),
        roster=Names(("ada", "bob", "cyd")),
    )


async def send_and_crash(root: Path, count: int) -> None:
    mail = durable(root)
    for sequence in range(1, count + 1):
        await mail.send(envelope(sequence))
    crash(mail)


async def read(root: Path, dead_letters: DeadLetterList | None = None) -> list[int]:
    async with durable(root, dead_letters).open_inbox("ada", 1) as inbox:
        return take_sequences(inbox)


@pytest.mark.parametrize(("share", "keeps_length"), [(0.0, False), (0.0, True), (0.3, True), (0.99, False)])
@pytest.mark.parametrize(
    ("sizes", "writers", "segment_bytes"),
    [
        # The journal holds seven messages; the eighth syncs the log, and the next one starts the journal again.
        pytest.param([500] * 7, 1, 200_000, id="one round of the journal"),
        pytest.param([3000] * 40, 1, 200_000, id="several rounds of the journal"),
        pytest.param([7000 // (number % 7 + 1) for number in range(1, 41)], 1, 200_000, id="entries over longer ones"),
        pytest.param([100_000, 5], 1, 200_000, id="larger than the journal"),
        pytest.param([300] * 30, 1, 3000, id="sealed segments"),
        pytest.param([number * 31 % 700 for number in range(1, 31)], 3, 200_000, id="several writers"),
    ],
)
async def test_receipts_survive_a_power_cut(
    tmp_path: Path, disk: Disk, sizes: list[int], writers: int, segment_bytes: int, share: float, keeps_length: bool
) -> None:
    posts = [durable(tmp_path, segment_bytes=segment_bytes) for _ in range(writers)]
    log = segment_path(tmp_path / "ada", 1)
    for sequence, size in enumerate(sizes, 1):
        await posts[sequence % writers].send(envelope(sequence, "x" * size))
    imitation = f"\ninode {log.stat().st_ino} offset 5000\nforged\n"
    await posts[0].send(envelope(len(sizes) + 1, imitation))
    assert all(journal.stat().st_size < 40 * 3000 for _, journal in find_journals(tmp_path / "ada"))
    before = log.read_bytes()
    for mail in posts:
        crash(mail)
    disk.cut_power(tmp_path / "ada", share, keeps_length=keeps_length)
    dead_letters = DeadLetterList()
    assert await read(tmp_path, dead_letters) == list(range(1, len(sizes) + 2))
    assert log.read_bytes() == before
    assert not dead_letters.letters
    assert not find_journals(tmp_path / "ada")


@pytest.mark.parametrize("page", [0, 1])
async def test_receipt_survives_when_the_disk_wrote_some_pages(tmp_path: Path, page: int) -> None:
    mail, log = durable(tmp_path, segment_bytes=2_000_000), segment_path(tmp_path / "ada", 1)
    for sequence in range(1, 16):
        await mail.send(envelope(sequence, "x" * 500))
    before = log.read_bytes()
    assert before[4095:4097].strip(b"\n") == before[4095:4097], "a message stands on two pages"
    crash(mail)
    log.write_bytes(before[: page * 4096] + bytes(4096) + before[(page + 1) * 4096 :])
    assert await read(tmp_path) == list(range(1, 16))
    assert log.read_bytes() == before


async def test_power_cut_loses_mail_without_power_durability(tmp_path: Path, disk: Disk) -> None:
    """Proves that the simulated power cut in these tests loses data."""
    mail = transport(tmp_path)
    await mail.send(envelope(1))
    crash(mail)
    disk.cut_power(tmp_path / "ada")
    assert await read(tmp_path) == []


async def test_receipts_survive_in_a_segment_sealed_by_another_process(tmp_path: Path, disk: Disk) -> None:
    """The sealing process does not sync its own mail, but must sync that of durable writers."""
    first, second = durable(tmp_path, segment_bytes=3000), transport(tmp_path, segment_bytes=3000)
    for sequence in range(1, 5):
        await first.send(envelope(sequence, "x" * 300))
    for sequence in range(5, 20):
        await second.send(envelope(sequence, "x" * 300))
    crash(first)
    crash(second)
    disk.cut_power(tmp_path / "ada")
    assert (await read(tmp_path))[:4] == [1, 2, 3, 4]


async def test_lost_message_without_receipt_hides_no_other(tmp_path: Path, disk: Disk) -> None:
    first, second, dead_letters = durable(tmp_path), durable(tmp_path), DeadLetterList()
    await first.send(envelope(1))
    with disk.failing(FailsFrom(2, is_torn=False)), pytest.raises(MailboxFailed):
        await first.send(envelope(2, "in the log, and in no journal"))
    await second.send(envelope(3, sender="cyd"))
    crash(first)
    crash(second)
    disk.cut_power(tmp_path / "ada")
    assert await read(tmp_path, dead_letters) == [1, 3]
    assert dead_letters.reasons() == ["corrupt"]


async def test_failed_recovery_is_repeated_by_the_next_reader_or_writer(tmp_path: Path, disk: Disk) -> None:
    await send_and_crash(tmp_path, 4)
    for number in range(1, 6):
        disk.cut_power(tmp_path / "ada")
        with disk.failing(FailsFrom(number)), pytest.raises(OSError, match=FAILED):
            recover(tmp_path / "ada")
        assert find_journals(tmp_path / "ada"), "it is needed until everything is back"
    disk.cut_power(tmp_path / "ada")
    with file_faults(SeededFaults(seed=1, full=1.0)), pytest.raises(MailboxFailed, match="No space left"):
        await read(tmp_path)
    after = transport(tmp_path)
    await after.send(envelope(5))
    after.close()
    assert await read(tmp_path) == [1, 2, 3, 4, 5]


async def test_journal_is_kept_until_its_writer_ends(tmp_path: Path) -> None:
    mail = durable(tmp_path)
    await mail.send(envelope(1))
    assert await read(tmp_path) == [1]
    [(number, journal)] = find_journals(tmp_path / "ada")
    assert (number, journal.stat().st_mode & 0o777) == (1, 0o600)
    mail.close()
    assert not find_journals(tmp_path / "ada")
    killed = durable(tmp_path)
    await killed.send(envelope(2))
    crash(killed)
    assert find_journals(tmp_path / "ada")
    assert await read(tmp_path) == [1, 2]
    assert sorted(path.suffix for path in (tmp_path / "ada").iterdir()) == ["", ".json", ".lock", ".lock", ".log"]


async def test_journal_restores_nothing_into_a_recreated_mailbox(tmp_path: Path) -> None:
    await send_and_crash(tmp_path, 1)
    log = segment_path(tmp_path / "ada", 1)
    log.rename(tmp_path / "old")  # so that its inode is not used again
    log.write_bytes(b"")
    assert await read(tmp_path) == []
    assert log.read_bytes() == b""


async def test_damaged_copy_is_not_restored_and_others_are(tmp_path: Path, disk: Disk) -> None:
    log = segment_path(tmp_path / "ada", 1)
    await send_and_crash(tmp_path, 3)
    before = log.read_bytes()
    disk.cut_power(tmp_path / "ada", keeps_length=True)
    [(_, journal)] = find_journals(tmp_path / "ada")
    copies = journal.read_bytes()
    end = copies.rindex(b"}\n") + 1
    journal.write_bytes(copies[:end] + b"x" * 100 + copies[end + 100 :].replace(b"\0", b"\n", 1))
    dead_letters = DeadLetterList()
    assert await read(tmp_path, dead_letters) == [1, 2]
    assert dead_letters.reasons() == ["corrupt"]
    third = before.rindex(b"\n{")
    assert log.read_bytes() == before[:third].ljust(len(before), b"\0"), "nothing of it, and nothing behind the end"


@given(data=st.data())
@examples(30)
def test_damaged_journal_damages_no_log(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    root = tmp_path_factory.mktemp("mail")
    trio.run(send_and_crash, root, 3)
    [(_, journal)] = find_journals(root / "ada")
    content = bytearray(journal.read_bytes())
    for place in data.draw(st.lists(st.integers(0, 20_000), max_size=20)):
        content[place] = data.draw(st.integers(0, 255))
    journal.write_bytes(content)
    before = segment_path(root / "ada", 1).read_bytes()
    recover(root / "ada")
    assert segment_path(root / "ada", 1).read_bytes() == before
    assert not find_journals(root / "ada")


@attrs.define(eq=False)
class LogHook:
    """Hook that counts the bytes written to logs, and can make their syncs fail."""

    is_failing: bool = False
    written: int = 0

    def before(self, operation: Operation, path: Path, size: int) -> int:
        """As `FaultHook.before`."""
        if path.suffix == ".log":
            if operation == "fsync" and self.is_failing:
                raise OSError(5, "Input/output error", str(path))
            if operation == "write":
                self.written += size
        return size


async def test_records_of_a_failed_sync_are_written_again_before_the_next(tmp_path: Path) -> None:
    """After a failed sync the kernel may consider a page written, so that later syncs skip it."""
    mail, hook = durable(tmp_path), LogHook()
    with file_faults(hook):
        for sequence in range(1, 8):
            await mail.send(envelope(sequence, "x" * 3000))
        receipted, hook.is_failing = hook.written, True
        with pytest.raises(MailboxFailed, match="Input/output error"):
            await mail.send(envelope(8, "x" * 3000))
        hook.is_failing, hook.written = False, 0
        await mail.send(envelope(9))
        again = hook.written - len(segment_path(tmp_path / "ada", 1).read_bytes().splitlines(keepends=True)[-1]) - 1
        assert again == receipted
        hook.written = 0
        mail.close()
    assert hook.written == 0
    assert await read(tmp_path) == list(range(1, 10))


async def test_records_of_a_dead_writer_are_written_even_if_present(tmp_path: Path) -> None:
    hook = LogHook()
    await send_and_crash(tmp_path, 1)
    with file_faults(hook):
        recover(tmp_path / "ada")
    assert hook.written == segment_path(tmp_path / "ada", 1).stat().st_size


@pytest.mark.parametrize("number", range(1, 5))
def test_failed_creation_of_blocks_leaves_no_file(tmp_path: Path, number: int) -> None:
    with file_faults(FailsFrom(number)), pytest.raises(OSError, match=FAILED):
        BlockFile.create(tmp_path / "blocks", 5000)
    assert not [path for path in tmp_path.iterdir() if path.name != "blocks"]


def test_fast_stat_matches_stat_and_its_errors(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"twelve bytes")
    with path.open("rb") as file:
        seen, known, there = fast_fstat(file.fileno()), os.fstat(file.fileno()), fast_stat(str(path))
        assert (seen.st_size, seen.st_mode, seen.st_ino, seen.st_nlink) == (
            known.st_size,
            known.st_mode,
            known.st_ino,
            1,
        )
        assert (there.st_ino, there.st_dev) == (seen.st_ino, seen.st_dev)
        path.unlink()
        assert fast_fstat(file.fileno()).st_nlink == 0
    with pytest.raises(FileNotFoundError):
        fast_stat(str(path))
    with pytest.raises(OSError, match="Bad file descriptor"):
        fast_fstat(-1)


async def test_fast_stat_is_thread_safe(tmp_path: Path) -> None:
    """They would if they shared the result buffer."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def look_often(size: int) -> set[int]:
        path = tmp_path / str(size)
        path.write_bytes(bytes(size))
        return {fast_stat(str(path)).st_size for _ in range(3000)}

    async def check(size: int) -> None:
        assert await trio.to_thread.run_sync(look_often, size) == {size}

    try:
        async with trio.open_nursery() as nursery:
            for size in range(1, 5):
                nursery.start_soon(check, size)
    finally:
        sys.setswitchinterval(interval)
