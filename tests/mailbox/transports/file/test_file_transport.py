import fcntl
import os
import shutil
from pathlib import Path

import pytest
import trio
import trio.testing

from coterie.files import file_faults, frame_record
from coterie.mailbox.contract import MailLimits
from coterie.mailbox.errors import MailboxFailed, MailboxFull, NameInvalid, UnknownRecipient
from coterie.mailbox.transports.file import wakeup
from coterie.mailbox.transports.file.group_commit import GroupCommit
from coterie.mailbox.transports.file.transport import FileTransport
from tests.mailbox.file_mail import DeadLetterList, envelope, take_sequences, transport
from tests.seeded_faults import SeededFaults

ROOT = Path(__file__).parents[4]
IS_ROOT = os.geteuid() == 0


@pytest.fixture
def mail(tmp_path: Path) -> FileTransport:
    return transport(tmp_path)


async def send(mail: FileTransport, *sequences: int) -> None:
    for sequence in sequences:
        await mail.send(envelope(sequence))


async def test_message_is_one_readable_line_in_a_private_directory(tmp_path: Path, mail: FileTransport) -> None:
    sent = envelope(1, "first\nsecond")
    receipt = await mail.send(sent)
    assert (receipt.id, receipt.recipient, receipt.transport) == (sent.id, "ada", "file")
    log = (tmp_path / "ada" / "000001.log").read_bytes()
    assert log == frame_record(sent.to_bytes())
    assert log.count(b"\n") == 2
    async with mail.open_inbox("ada", 1):
        modes = {path.name: path.stat().st_mode & 0o077 for path in (tmp_path / "ada").iterdir()}
    assert (tmp_path / "ada").stat().st_mode & 0o077 == 0
    assert not modes["000001.log"] | modes["cursor.json"]


@pytest.mark.parametrize("name", ["adda", "zed", "../ada", "a/b", "", "x" * 300, "\0", "\u0430da"])
async def test_wrong_name_creates_no_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises((UnknownRecipient, NameInvalid)):
        await transport(tmp_path).send(envelope(1, to=name))
    with pytest.raises((UnknownRecipient, NameInvalid)):
        async with transport(tmp_path).open_inbox(name, 1):
            pass
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240 - quick


async def test_full_segments_are_sealed_and_deleted_when_acknowledged_but_the_last_two(tmp_path: Path) -> None:
    mail = transport(tmp_path, segment_bytes=2000)
    await send(mail, *range(1, 51))
    segments = sorted((tmp_path / "ada").glob("*.log"))
    assert len(segments) > 5
    assert [path.stat().st_mode & 0o200 for path in segments] == [0] * (len(segments) - 1) + [0o200]
    async with mail.open_inbox("ada", 1) as inbox:
        taken = inbox.take_nowait()
        assert [delivery.envelope.sequence for delivery in taken] == list(range(1, 51))
        await inbox.acknowledge([delivery.envelope.id for delivery in taken])
        assert len(list((tmp_path / "ada").glob("*.log"))) == 2
        await mail.send(envelope(51))
        assert take_sequences(inbox) == [51]


async def test_writer_stopped_in_an_append_does_not_block_others(tmp_path: Path) -> None:
    mail = transport(tmp_path, segment_bytes=1500)
    await mail.send(envelope(1))
    with (tmp_path / "ada" / "000001.log").open("rb") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_SH)
        await send(mail, *range(2, 9))
        assert [path.name for path in (tmp_path / "ada").glob("*.log")] == ["000001.log"]
    await mail.send(envelope(9))
    async with mail.open_inbox("ada", 1) as inbox:
        assert take_sequences(inbox) == list(range(1, 10))


@pytest.mark.parametrize("is_followed", [False, True])
@pytest.mark.parametrize("missing", [1, 2, *range(3, 400, 7)])
async def test_record_torn_at_any_byte_loses_no_other(tmp_path: Path, missing: int, *, is_followed: bool) -> None:
    """A record without its last newline is complete."""
    dead_letters = DeadLetterList()
    mail = transport(tmp_path, dead_letters)
    await mail.send(envelope(1))
    record = frame_record(envelope(2).to_bytes())
    torn = record[:-missing]
    with (tmp_path / "ada" / "000001.log").open("ab") as log:
        log.write(torn)
    if is_followed:
        await mail.send(envelope(3))
    async with mail.open_inbox("ada", 1) as inbox:
        assert take_sequences(inbox) == [1, *([2] if missing == 1 else []), *([3] if is_followed else [])]
        await mail.send(envelope(4))
        assert take_sequences(inbox) == [4]
    assert [letter.raw for letter in dead_letters.letters] == ([torn[1:]] if missing > 1 and len(torn) > 1 else [])


async def test_incomplete_record_waits_for_its_writer_and_is_dead_lettered_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "POLL_INTERVAL", 0.02)
    dead_letters = DeadLetterList()
    mail = transport(tmp_path, dead_letters)
    await mail.send(envelope(1))
    record = frame_record(envelope(2).to_bytes())
    async with mail.open_inbox("ada", 1) as inbox:
        with (tmp_path / "ada" / "000001.log").open("ab", buffering=0) as log:
            fcntl.flock(log, fcntl.LOCK_SH)
            log.write(record[:100])
            assert take_sequences(inbox) == [1]
            assert take_sequences(inbox) == []
            log.write(record[100:])
            assert take_sequences(inbox) == [2]
            log.write(b"\n{half")
            assert take_sequences(inbox) == []
        assert dead_letters.letters == []
        with trio.fail_after(1):
            await inbox.wait()
        assert take_sequences(inbox) == []
    assert [letter.raw for letter in dead_letters.letters] == [b"{half"]


async def test_unreadable_cursor_loses_no_mail(tmp_path: Path, mail: FileTransport) -> None:
    await mail.send(envelope(1))
    async with mail.open_inbox("ada", 1) as inbox:
        await inbox.acknowledge([delivery.envelope.id for delivery in inbox.take_nowait()])
    await mail.send(envelope(2))
    for content in (b"", b"{", b'{"segment":-1}', b'{"segment":1,"offset":999999}', b'{"segment":7}', b'{"v":9}'):
        (tmp_path / "ada" / "cursor.json").write_bytes(content)
        async with mail.open_inbox("ada", 1) as inbox:
            assert [delivery.is_again for delivery in inbox.take_nowait()] == [True, True]


async def test_a_mailbox_is_full_by_messages_until_some_are_acknowledged(tmp_path: Path) -> None:
    """The messages are counted over several segments."""
    mail = transport(tmp_path, limits=MailLimits(messages=10), segment_bytes=1500)
    await send(mail, *range(1, 11))
    with pytest.raises(MailboxFull) as caught:
        await mail.send(envelope(11))
    assert (caught.value.waiting, caught.value.limit, caught.value.unit) == (10, 10, "messages")
    async with mail.open_inbox("ada", 1) as inbox:
        taken = inbox.take_nowait()
        await inbox.acknowledge([taken[5].envelope.id, taken[8].envelope.id])
        await send(mail, 11, 12)
        with pytest.raises(MailboxFull):
            await mail.send(envelope(13))


@pytest.mark.parametrize("has_socket", [True, False], ids=["socket", "inotify"])
async def test_waiting_reader_is_woken_without_polling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_socket: bool
) -> None:
    if not has_socket:
        monkeypatch.setattr(wakeup, "_bind", lambda _: None)
    mail, taken = transport(tmp_path / ("deep" * 40) / ("deeper" * 20)), list[int]()

    async def read() -> None:
        while len(taken) < sequence:
            await inbox.wait()
            taken.extend(take_sequences(inbox))

    async with mail.open_inbox("ada", 1) as inbox:
        for sequence in (1, 2):
            with trio.fail_after(wakeup.POLL_INTERVAL / 2):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(read)
                    await trio.testing.wait_all_tasks_blocked(0.01)
                    await mail.send(envelope(sequence))
    assert taken == [1, 2]


async def test_reader_polls_without_socket_and_inotify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeup, "_bind", lambda _: None)
    monkeypatch.setattr(wakeup, "_watch", lambda _: None)
    monkeypatch.setattr(wakeup, "POLL_INTERVAL", 0.02)
    mail = transport(tmp_path)
    async with mail.open_inbox("ada", 1) as inbox:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inbox.wait)
            await trio.testing.wait_all_tasks_blocked(0.005)
            with (tmp_path / "ada" / "000001.log").open("wb") as log:
                log.write(frame_record(envelope(1).to_bytes()))
        assert take_sequences(inbox) == [1]


async def test_deleted_mailbox_is_recreated_by_reader_and_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "POLL_INTERVAL", 0.02)
    mail = transport(tmp_path, segment_bytes=1500)
    await send(mail, *range(1, 11))
    async with mail.open_inbox("ada", 1) as inbox:
        taken = inbox.take_nowait()
        shutil.rmtree(tmp_path / "ada")
        await mail.send(envelope(11))
        with trio.fail_after(1):
            await inbox.wait()
        assert take_sequences(inbox) == [11]
        await inbox.acknowledge([delivery.envelope.id for delivery in taken])
        await mail.send(envelope(12))
        shutil.rmtree(tmp_path / "ada")
        assert take_sequences(inbox) == [12], "sent before the deletion"
        assert take_sequences(inbox) == []
        await mail.send(envelope(13))
        assert take_sequences(inbox) == [13]
    async with mail.open_inbox("ada", 1) as inbox:
        assert take_sequences(inbox) == [13]


async def test_deleted_logs_do_not_hide_later_mail(tmp_path: Path, mail: FileTransport) -> None:
    await mail.send(envelope(1))
    async with mail.open_inbox("ada", 1) as inbox:
        await inbox.acknowledge([delivery.envelope.id for delivery in inbox.take_nowait()])
        (tmp_path / "ada" / "000001.log").unlink()
        await mail.send(envelope(2))
        assert take_sequences(inbox) == [2]
    (tmp_path / "ada" / "000002.log").unlink()
    await mail.send(envelope(3))
    async with mail.open_inbox("ada", 1) as inbox:
        assert take_sequences(inbox) == [3]


async def test_mailbox_recreated_by_another_reader_is_busy(tmp_path: Path, mail: FileTransport) -> None:
    """In every state, waiting and acknowledging execute a checkpoint."""
    await mail.send(envelope(1))
    async with mail.open_inbox("ada", 1) as inbox:
        with trio.testing.assert_checkpoints():
            await inbox.wait()
        ids = [delivery.envelope.id for delivery in inbox.take_nowait()]
        for _ in range(10):
            with trio.testing.assert_checkpoints():
                await inbox.acknowledge(ids)
        shutil.rmtree(tmp_path / "ada")
        async with transport(tmp_path).open_inbox("ada", 1):
            for _ in range(2):
                with pytest.raises(MailboxFailed, match="already has a reader"):
                    inbox.take_nowait()
            with trio.testing.assert_checkpoints():
                await inbox.wait()
            await mail.send(envelope(2))
        assert take_sequences(inbox) == [2]


async def test_file_at_the_path_of_a_mailbox_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "ada").write_text("a file where the mailbox should be")
    with pytest.raises(MailboxFailed, match="ada"):
        await transport(tmp_path).send(envelope(1))
    with pytest.raises(MailboxFailed, match="ada"):
        async with transport(tmp_path).open_inbox("ada", 1):
            pass


async def test_concurrent_senders_share_syncs_and_their_failure(tmp_path: Path) -> None:
    class Counting:
        syncs = 0

        def before(self, operation: str, path: Path, size: int) -> int:  # noqa: ARG002 - the shape of a hook
            self.syncs += operation == "fsync"
            return size

    async def send(sequence: int) -> None:
        try:
            await mail.send(envelope(sequence))
        except MailboxFailed as exc:
            failures.append(exc.reason)

    mail, hook, failures = transport(tmp_path, durability="power"), Counting(), list[str]()
    await mail.send(envelope(1))
    for faults, sequences in ((hook, range(2, 66)), (SeededFaults(seed=1, fsync=1.0), range(66, 76))):
        with file_faults(faults):
            async with trio.open_nursery() as nursery:
                for sequence in sequences:
                    nursery.start_soon(send, sequence)
    assert 1 <= hook.syncs <= 8
    assert len(failures) == 10
    async with mail.open_inbox("ada", 1) as inbox:
        assert sorted(take_sequences(inbox))[:65] == list(range(1, 66))


async def test_commit_does_not_join_a_running_write() -> None:
    runs: list[int] = []
    value = 0

    commit = GroupCommit(lambda: value, runs.append)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            value += 1
            nursery.start_soon(commit.run)
            await trio.lowlevel.checkpoint()
    assert runs[-1] == 5
    assert len(runs) <= 3


async def test_closed_inbox_cannot_be_used_and_holds_no_descriptor(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - not files
    mail = transport(tmp_path)
    await mail.send(envelope(1))
    async with mail.open_inbox("ada", 1) as inbox:
        take_sequences(inbox)
    with pytest.raises(trio.ClosedResourceError):
        inbox.take_nowait()
    mail.close()
    assert len(set(os.listdir("/proc/self/fd")) - before) <= 1  # noqa: PTH208 - not files
