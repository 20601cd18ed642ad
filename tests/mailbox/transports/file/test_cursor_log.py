import itertools
from pathlib import Path

import pytest

from coterie.files import TornWrite, file_faults
from coterie.mailbox.transports.file.cursor import CURSOR_FILE, LONGEST, AckRange, Cursor, CursorLog, load_cursor
from tests.seeded_faults import SeededFaults


def test_last_cursor_is_loaded_and_the_file_stays_short(tmp_path: Path) -> None:
    log, sizes = CursorLog.of(tmp_path), []
    for offset in range(2_000):
        log.write(Cursor(offset=offset))
        assert load_cursor(tmp_path) == Cursor(offset=offset)
        sizes.append((tmp_path / CURSOR_FILE).stat().st_size)
    log.close()
    assert sum(later < earlier for earlier, later in itertools.pairwise(sizes)) >= 2  # it has begun again
    assert max(sizes) < LONGEST + 1_000
    assert [entry.name for entry in tmp_path.iterdir()] == [CURSOR_FILE]
    assert (tmp_path / CURSOR_FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("fault", "is_open"), [("torn", True), ("torn", False), ("full", False), ("rename", False)])
def test_cursor_is_unchanged_when_writing_fails(tmp_path: Path, fault: str, *, is_open: bool) -> None:
    """An open log appends, and a closed one replaces its file."""
    log = CursorLog.of(tmp_path)
    log.write(Cursor(offset=1))
    if not is_open:
        log.close()
    with file_faults(SeededFaults.from_mapping({fault: 1.0})), pytest.raises(OSError):  # noqa: PT011 - each has its own
        log.write(Cursor(offset=2))
    assert load_cursor(tmp_path) == Cursor(offset=1)
    log.write(Cursor(offset=3))
    log.close()
    assert load_cursor(tmp_path) == Cursor(offset=3)


def test_cursor_longer_than_the_first_read_is_found(tmp_path: Path) -> None:
    done = tuple(AckRange(segment=1, start=n, end=n + 1, newlines=2) for n in range(0, 1_000, 2))
    log = CursorLog.of(tmp_path)
    log.write(Cursor(offset=1))
    log.write(Cursor(offset=2, done=done))
    with file_faults(SeededFaults(seed=1, torn=1.0)), pytest.raises(TornWrite):
        log.write(Cursor(offset=3))
    log.close()
    assert load_cursor(tmp_path) == Cursor(offset=2, done=done)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"{", b"\0" * 9_000, b'{"v":1}\n' * 9_000])
def test_file_without_a_valid_line_has_no_cursor(tmp_path: Path, content: bytes) -> None:
    (tmp_path / CURSOR_FILE).write_bytes(content)
    assert load_cursor(tmp_path) is None
