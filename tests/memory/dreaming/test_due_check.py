"""When a dream is due, and the lock of dreams."""

import json
import os
from pathlib import Path

import pytest

from coterie.clock import Clock
from coterie.memory.dreaming.dream_lock import (
    ABANDONED,
    LOCK,
    DreamLock,
    DueCheck,
    LockOwner,
    SessionActivity,
    acquire_dream_lock,
    active_since,
    last_dream_time,
)
from coterie.memory.errors import DreamRefused
from coterie.memory.layer_settings import DreamingSettings

HOUR = 3600.0
YEAR = 365 * 24 * HOUR


def gates(directory: Path, clock: Clock, count: int = 5) -> tuple[DueCheck, list[float]]:
    """Return the check, and the times at which it listed the sessions."""
    looked: list[float] = []

    def sessions() -> list[SessionActivity]:
        looked.append(clock.now())
        return [SessionActivity(directory=Path(str(number)), at=clock.now()) for number in range(count)]

    return DueCheck(directory, sessions, DreamingSettings(), clock), looked


def held_by(path: Path, before: float | None, at: float, **owner: object) -> None:
    """Write the lock file of this process, or of one that differs in *owner*."""
    this = LockOwner.this()
    facts = {"pid": this.pid, "began": this.began, "place": this.place, **owner}
    path.write_text(json.dumps({"v": 1, "owner": facts, "before": before}))
    os.utime(path, (at, at))


def test_cheap_conditions_are_checked_first(tmp_path: Path) -> None:
    clock = Clock()
    acquire_dream_lock(tmp_path, clock).complete()
    soon, looked_soon = gates(tmp_path, clock)
    assert "24" in (soon.reason_not_due() or "")
    assert not looked_soon
    clock.advance(24 * HOUR)
    assert soon.reason_not_due() is None
    assert "counted 0 minutes ago" in (soon.reason_not_due() or "")
    clock.advance(601)
    assert soon.reason_not_due() is None
    assert len(looked_soon) == 2
    assert (gates(tmp_path, clock, count=4)[0].reason_not_due() or "").startswith("4 sessions were active")
    assert gates(tmp_path / "memory", clock)[0].reason_not_due() is None
    assert not (tmp_path / "memory").exists()


def test_only_sessions_since_the_last_dream_count(tmp_path: Path) -> None:
    sessions = [SessionActivity(directory=tmp_path / str(at), at=at) for at in (1.0, 5.0, 3.0)]
    assert [session.at for session in active_since(sessions, 2.0)] == [5.0, 3.0]
    assert [session.at for session in active_since(sessions, None)] == [5.0, 3.0, 1.0]


def test_clock_that_was_set_back_delays_neither_dream_nor_scan(tmp_path: Path) -> None:
    clock = Clock()
    due, looked = gates(tmp_path, clock)
    for _ in range(2):
        assert due.reason_not_due() is None
        clock.advance(-YEAR)
    assert len(looked) == 2, "the time of the first scan is in the future"
    acquire_dream_lock(tmp_path, clock).complete()
    clock.advance(-YEAR)
    assert "the last dream was 0.0 hours ago" in (due.reason_not_due() or "")
    clock.advance(25 * HOUR)
    assert due.reason_not_due() is None


@pytest.mark.parametrize("before", [None, 1_000_000.0])
def test_released_lock_restores_the_previous_time(tmp_path: Path, before: float | None) -> None:
    path = tmp_path / LOCK
    if before is not None:
        path.write_text("{}")
        os.utime(path, (before, before))
    lock = acquire_dream_lock(tmp_path, Clock())
    assert path.stat().st_mtime > 1_000_000.0
    assert path.stat().st_mode & 0o777 == 0o600
    lock.release()
    lock.release()
    lock.complete()
    assert last_dream_time(tmp_path, Clock()) == before
    assert path.exists() == (before is not None)


@pytest.mark.parametrize("owner", [{"pid": 2**22 + 1}, {"began": 1}], ids=["no such process", "a number used again"])
def test_lock_of_a_dead_owner_is_taken_over(tmp_path: Path, owner: dict[str, object]) -> None:
    clock = Clock()
    for before in (5_000.0, None):
        held_by(tmp_path / LOCK, before, clock.now(), **owner)
        assert last_dream_time(tmp_path, clock) == before
    held_by(tmp_path / LOCK, 5_000.0, clock.now(), **owner)
    acquire_dream_lock(tmp_path, clock).release()
    assert (tmp_path / LOCK).stat().st_mtime == 5_000.0


def test_lock_of_a_living_owner_is_never_taken_over(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / LOCK
    for at in (clock.now(), 1_000.0, clock.now() + YEAR):
        held_by(path, 5.0, at)
        with pytest.raises(DreamRefused):
            acquire_dream_lock(tmp_path, clock)
    path.write_text(str(os.getpid()))  # a bare process id
    with pytest.raises(DreamRefused):
        acquire_dream_lock(tmp_path, clock)
    os.utime(path, (5.0, 5.0))  # before this process started, when its id belonged to another process
    acquire_dream_lock(tmp_path, clock).release()
    assert path.stat().st_mtime == 5.0


def test_lock_of_a_remote_owner_is_respected_for_an_hour(tmp_path: Path) -> None:
    clock = Clock()
    held_by(tmp_path / LOCK, 5.0, clock.now() - ABANDONED + 60, place="another machine")
    with pytest.raises(DreamRefused):
        acquire_dream_lock(tmp_path, clock)
    for at in (clock.now() - ABANDONED - 60, clock.now() + YEAR):
        held_by(tmp_path / LOCK, 5.0, at, place="another machine")
        acquire_dream_lock(tmp_path, clock).release()
        assert (tmp_path / LOCK).stat().st_mtime == 5.0


@pytest.mark.parametrize("content", [b"", b"\xff", b"{", b"[]", b'{"owner": 3}', b"null", b"true"])
def test_unreadable_lock_counts_as_free(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LOCK).write_bytes(content)
    assert isinstance(acquire_dream_lock(tmp_path, Clock()), DreamLock)


def test_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    os.utime(other, (5.0, 5.0))
    (tmp_path / LOCK).symlink_to("other")
    acquire_dream_lock(tmp_path, Clock()).complete()
    assert (other.read_text(), other.stat().st_mtime) == ("mine", 5.0)
