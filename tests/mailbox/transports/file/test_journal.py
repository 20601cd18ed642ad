"""A receipt survives a power cut: what a log loses is put back from the journals of those who wrote it."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.files import BlockFile, Operation, SeededFaults, file_faults
from coterie.mailbox.errors import MailboxFailed
from coterie.mailbox.transports.file.fast_stat import fast_fstat, fast_stat
from coterie.mailbox.transports.file.journal import recover
from coterie.mailbox.transports.file.log_segments import find_journals, segment_path
from coterie.mailbox.transports.file.transport import FileTransport
from tests.mailbox.file_mail import DeadLetterList, Disk, FailsFrom, Names, crash, envelope, take_sequences, transport

FAILED = r"bytes were written|Input/output error"


@pytest.fixture
def disk() -> Iterator[Disk]:
    """One that can lose what is not synced."""
    disk = Disk()
    with file_faults(disk):
        yield disk


def durable(root: Path, graveyard: DeadLetterList | None = None, *, segment_bytes: int = 200_000) -> FileTransport:
    return attrs.evolve(
        transport(root, graveyard, durability="power", segment_bytes=segment_bytes), roster=Names(("ada", "bob", "cyd"))
    )


async def read(root: Path, graveyard: DeadLetterList | None = None) -> list[int]:
    async with durable(root, graveyard).open_inbox("ada", 1) as inbox:
        return take_sequences(inbox)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
@pytest.mark.parametrize("keeps_length", [False, True])
async def test_a_receipt_survives_a_power_cut(tmp_path: Path, disk: Disk, share: float, keeps_length: bool) -> None:
    post = durable(tmp_path)
    for sequence in range(1, 8):
        await post.send(envelope(sequence, "x" * 500))
    before = segment_path(tmp_path / "ada", 1).read_bytes()
    crash(post)
    disk.cut_power(tmp_path / "ada", share, keeps_length=keeps_length)
    assert segment_path(tmp_path / "ada", 1).read_bytes() != before
    graveyard = DeadLetterList()
    assert await read(tmp_path, graveyard) == list(range(1, 8))
    assert segment_path(tmp_path / "ada", 1).read_bytes() == before
    assert not graveyard.letters
    assert not find_journals(tmp_path / "ada")


@pytest.mark.parametrize("page", [0, 1])
async def test_a_receipt_survives_although_the_disk_has_other_pages_of_its_message(tmp_path: Path, page: int) -> None:
    post, log = durable(tmp_path, segment_bytes=2_000_000), segment_path(tmp_path / "ada", 1)
    for sequence in range(1, 16):
        await post.send(envelope(sequence, "x" * 500))
    before = log.read_bytes()
    assert before[4095:4097].strip(b"\n") == before[4095:4097], "a message stands on two pages"
    crash(post)
    log.write_bytes(before[: page * 4096] + bytes(4096) + before[(page + 1) * 4096 :])
    assert await read(tmp_path) == list(range(1, 16))
    assert log.read_bytes() == before


async def test_without_power_durability_a_power_cut_takes_the_mail(tmp_path: Path, disk: Disk) -> None:
    """So that the tests here are known to cut something off."""
    post = transport(tmp_path)
    await post.send(envelope(1))
    crash(post)
    disk.cut_power(tmp_path / "ada")
    assert await read(tmp_path) == []


async def test_receipts_of_many_rounds_of_the_journal_survive(tmp_path: Path, disk: Disk) -> None:
    """The journal holds seven of them; the eighth syncs the log, and the next begins it anew."""
    post = durable(tmp_path)
    for sequence in range(1, 41):
        await post.send(envelope(sequence, "x" * 3000))
    [(_, journal)] = find_journals(tmp_path / "ada")
    assert journal.stat().st_size < 40 * 3000
    crash(post)
    disk.cut_power(tmp_path / "ada")
    assert await read(tmp_path) == list(range(1, 41))


async def test_stale_bytes_behind_shorter_journal_entries_are_ignored(tmp_path: Path, disk: Disk) -> None:
    post = durable(tmp_path)
    for sequence in range(1, 41):
        await post.send(envelope(sequence, "x" * (7000 // (sequence % 7 + 1))))
    before = segment_path(tmp_path / "ada", 1).read_bytes()
    crash(post)
    disk.cut_power(tmp_path / "ada")
    graveyard = DeadLetterList()
    assert await read(tmp_path, graveyard) == list(range(1, 41))
    assert segment_path(tmp_path / "ada", 1).read_bytes() == before
    assert not graveyard.letters


async def test_a_message_larger_than_the_journal_survives(tmp_path: Path, disk: Disk) -> None:
    post = durable(tmp_path)
    await post.send(envelope(1, "x" * 100_000))
    await post.send(envelope(2))
    crash(post)
    disk.cut_power(tmp_path / "ada")
    assert await read(tmp_path) == [1, 2]


async def test_receipts_survive_across_sealed_segments(tmp_path: Path, disk: Disk) -> None:
    post = durable(tmp_path, segment_bytes=3000)
    for sequence in range(1, 31):
        await post.send(envelope(sequence, "x" * 300))
    crash(post)
    disk.cut_power(tmp_path / "ada")
    assert await read(tmp_path) == list(range(1, 31))


async def test_what_another_process_sealed_survives(tmp_path: Path, disk: Disk) -> None:
    """The one that seals does not sync its own mail; it does so for the sake of those who do."""
    first, second = durable(tmp_path, segment_bytes=3000), transport(tmp_path, segment_bytes=3000)
    for sequence in range(1, 5):
        await first.send(envelope(sequence, "x" * 300))
    for sequence in range(5, 20):
        await second.send(envelope(sequence, "x" * 300))
    crash(first)
    crash(second)
    disk.cut_power(tmp_path / "ada")
    assert (await read(tmp_path))[:4] == [1, 2, 3, 4]


async def test_the_journals_of_several_writers_fill_each_others_gaps(tmp_path: Path, disk: Disk) -> None:
    posts = [durable(tmp_path) for _ in range(3)]
    for sequence in range(1, 31):
        await posts[sequence % 3].send(envelope(sequence, "x" * (sequence * 31 % 700)))
    for post in posts:
        crash(post)
    disk.cut_power(tmp_path / "ada", 0.2)
    graveyard = DeadLetterList()
    assert await read(tmp_path, graveyard) == list(range(1, 31))
    assert not graveyard.letters


async def test_what_had_no_receipt_and_is_lost_does_not_hide_what_had_one(tmp_path: Path, disk: Disk) -> None:
    first, second, graveyard = durable(tmp_path), durable(tmp_path), DeadLetterList()
    await first.send(envelope(1))
    with disk.failing(FailsFrom(2, is_torn=False)), pytest.raises(MailboxFailed):
        await first.send(envelope(2, "in the log, and in no journal"))
    await second.send(envelope(3, sender="cyd"))
    crash(first)
    crash(second)
    disk.cut_power(tmp_path / "ada")
    assert await read(tmp_path, graveyard) == [1, 3]
    assert graveyard.reasons() == ["corrupt"]


async def test_a_writer_puts_back_what_is_lost_before_it_appends(tmp_path: Path, disk: Disk) -> None:
    post = durable(tmp_path)
    await post.send(envelope(1))
    crash(post)
    disk.cut_power(tmp_path / "ada")
    after = transport(tmp_path)
    await after.send(envelope(2))
    after.close()
    assert await read(tmp_path) == [1, 2]


async def test_recovering_again_after_a_crash_in_the_middle_of_it_changes_nothing(tmp_path: Path, disk: Disk) -> None:
    post = durable(tmp_path)
    for sequence in range(1, 5):
        await post.send(envelope(sequence))
    crash(post)
    for number in range(1, 6):
        disk.cut_power(tmp_path / "ada")
        with disk.failing(FailsFrom(number)), pytest.raises(OSError, match=FAILED):
            recover(tmp_path / "ada")
        assert find_journals(tmp_path / "ada"), "it is needed until everything is back"
    assert await read(tmp_path) == [1, 2, 3, 4]


async def test_a_full_disk_keeps_the_reader_out_and_the_journal_in(tmp_path: Path, disk: Disk) -> None:
    post = durable(tmp_path)
    await post.send(envelope(1))
    crash(post)
    disk.cut_power(tmp_path / "ada")
    with file_faults(SeededFaults(seed=1, full=1.0)), pytest.raises(MailboxFailed, match="No space left"):
        await read(tmp_path)
    assert await read(tmp_path) == [1]


async def test_the_journal_of_a_writer_that_lives_is_left_alone(tmp_path: Path) -> None:
    post = durable(tmp_path)
    await post.send(envelope(1))
    assert await read(tmp_path) == [1]
    [(number, journal)] = find_journals(tmp_path / "ada")
    assert (number, journal.stat().st_mode & 0o777) == (1, 0o600)
    post.close()
    assert not find_journals(tmp_path / "ada")


async def test_a_writer_that_was_killed_leaves_nothing_once_somebody_has_looked(tmp_path: Path) -> None:
    post = durable(tmp_path)
    await post.send(envelope(1))
    crash(post)
    assert find_journals(tmp_path / "ada")
    assert await read(tmp_path) == [1]
    assert sorted(path.suffix for path in (tmp_path / "ada").iterdir()) == ["", ".json", ".lock", ".lock", ".log"]


async def test_a_journal_of_a_mailbox_that_was_made_anew_puts_nothing_into_it(tmp_path: Path) -> None:
    post = durable(tmp_path)
    await post.send(envelope(1))
    crash(post)
    log = segment_path(tmp_path / "ada", 1)
    log.rename(tmp_path / "old")  # so that its inode is not used again
    log.write_bytes(b"")
    assert await read(tmp_path) == []
    assert log.read_bytes() == b""


async def test_text_that_imitates_a_journal_is_text(tmp_path: Path, disk: Disk) -> None:
    post = durable(tmp_path)
    await post.send(envelope(1))
    inode = segment_path(tmp_path / "ada", 1).stat().st_ino
    forged = f"\ninode {inode} offset 5000\nforged\n"
    await post.send(envelope(2, forged))
    crash(post)
    disk.cut_power(tmp_path / "ada")
    graveyard = DeadLetterList()
    assert await read(tmp_path, graveyard) == [1, 2]
    assert not graveyard.letters


async def test_a_damaged_copy_is_not_put_back_and_does_not_keep_others_from_it(tmp_path: Path, disk: Disk) -> None:
    post, log = durable(tmp_path), segment_path(tmp_path / "ada", 1)
    for sequence in range(1, 4):
        await post.send(envelope(sequence))
    before = log.read_bytes()
    crash(post)
    disk.cut_power(tmp_path / "ada", keeps_length=True)
    [(_, journal)] = find_journals(tmp_path / "ada")
    copies = journal.read_bytes()
    end = copies.rindex(b"}\n") + 1
    journal.write_bytes(copies[:end] + b"x" * 100 + copies[end + 100 :].replace(b"\0", b"\n", 1))
    graveyard = DeadLetterList()
    assert await read(tmp_path, graveyard) == [1, 2]
    assert graveyard.reasons() == ["corrupt"]
    third = before.rindex(b"\n{")
    assert log.read_bytes() == before[:third].ljust(len(before), b"\0"), "nothing of it, and nothing behind the end"


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_whatever_of_a_journal_is_damaged_no_log_is(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("mail")
    trio.run(_send_and_crash, root)
    [(_, journal)] = find_journals(root / "ada")
    content = bytearray(journal.read_bytes())
    for place in data.draw(st.lists(st.integers(0, 20_000), max_size=20)):
        content[place] = data.draw(st.integers(0, 255))
    journal.write_bytes(content)
    before = segment_path(root / "ada", 1).read_bytes()
    recover(root / "ada")
    assert segment_path(root / "ada", 1).read_bytes() == before
    assert not find_journals(root / "ada")


async def _send_and_crash(root: Path) -> None:
    post = durable(root)
    for sequence in range(1, 4):
        await post.send(envelope(sequence))
    crash(post)


async def test_a_failed_sync_of_the_log_keeps_the_journal(tmp_path: Path, disk: Disk) -> None:
    post = durable(tmp_path)
    await post.send(envelope(1))
    with disk.failing(FailsFrom(1, is_torn=False)):
        post.close()
    disk.cut_power(tmp_path / "ada")
    assert await read(tmp_path) == [1]


@attrs.define(eq=False)
class LogHook:
    """Counts the bytes that are written to logs, whose syncs may fail."""

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


async def test_what_a_failed_sync_may_have_lost_is_written_again_before_the_next_one(tmp_path: Path) -> None:
    """The kernel may hold a page for written that the disk did not take, and then no other sync does so."""
    post, hook = durable(tmp_path), LogHook()
    with file_faults(hook):
        for sequence in range(1, 8):
            await post.send(envelope(sequence, "x" * 3000))
        receipted, hook.is_failing = hook.written, True
        with pytest.raises(MailboxFailed, match="Input/output error"):
            await post.send(envelope(8, "x" * 3000))
        hook.is_failing, hook.written = False, 0
        await post.send(envelope(9))
        again = hook.written - len(segment_path(tmp_path / "ada", 1).read_bytes().splitlines(keepends=True)[-1]) - 1
        assert again == receipted
        hook.written = 0
        post.close()
    assert hook.written == 0
    assert await read(tmp_path) == list(range(1, 10))


async def test_what_a_dead_writer_left_is_written_again_although_it_seems_to_be_there(tmp_path: Path) -> None:
    post, hook = durable(tmp_path), LogHook()
    await post.send(envelope(1))
    crash(post)
    with file_faults(hook):
        recover(tmp_path / "ada")
    assert hook.written == segment_path(tmp_path / "ada", 1).stat().st_size


def test_blocks_are_zeros_until_they_are_written_over(tmp_path: Path) -> None:
    blocks = BlockFile.create(tmp_path / "blocks", 5000)
    try:
        assert (tmp_path / "blocks").read_bytes() == bytes(8192)
        assert blocks.write(b"first", 4096) == 4096
        assert (tmp_path / "blocks").read_bytes() == bytes(4096) + b"first".ljust(4096, b"\0")
        assert blocks.write(b"second" * 1000, 0) == 8192
        assert (tmp_path / "blocks").read_bytes() == (b"second" * 1000).ljust(8192, b"\0")
        assert blocks.write(b"third", 4096) == 4096
        written = (tmp_path / "blocks").read_bytes()
        assert (written[:4096], written[4096:4101]) == ((b"second" * 1000)[:4096], b"third")
    finally:
        blocks.close()


@pytest.mark.parametrize("number", range(1, 5))
def test_blocks_that_cannot_be_made_leave_nothing(tmp_path: Path, number: int) -> None:
    with file_faults(FailsFrom(number)), pytest.raises(OSError, match=FAILED):
        BlockFile.create(tmp_path / "blocks", 5000)
    assert not [path for path in tmp_path.iterdir() if path.name != "blocks"]


def test_a_look_sees_what_a_stat_does_and_has_its_errors(tmp_path: Path) -> None:
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


async def test_looks_of_several_threads_do_not_see_each_others_files(tmp_path: Path) -> None:
    """Which they would if they shared the room for the answer."""
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
