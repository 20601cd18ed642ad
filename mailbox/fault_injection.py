"""Injected faults of files and mail: rules in one file, a record of what happened in another.

Orders can be added while processes run. Each is counted in the book by whichever process it meets, under a lock, so
that one that is to happen once happens once, however often a process is started again. The book is written past
`coterie.files`: it must be true while the disk is said to be full.
"""

import errno
import fcntl
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import attrs
import msgspec

from coterie.files import Operation
from coterie.mailbox.fault_points import MailFault, MailRoute

FileFault = Literal["torn_write", "disk_full", "fsync_fails", "rename_fails"]
_OPERATIONS: dict[FileFault, Operation] = {
    "torn_write": "write",
    "disk_full": "write",
    "fsync_fails": "fsync",
    "rename_fails": "rename",
}
RECORD_BYTES = 4096


class FaultRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something is to go wrong."""

    id: int
    do: MailFault | FileFault
    target: str = ""
    """Of mail: who is to get it. Of files: the agent whose process writes, or `root`. Empty for anybody."""
    transport: MailRoute | None = None
    files: str = "*"
    """A pattern for paths, matched from the right."""
    after: int = 0
    """So many pass first."""
    times: int | None = 1
    """None: always, from then on."""
    seconds: float = 0.0
    """Of a delay."""
    seed: int = 0


class InjectedFault(msgspec.Struct, frozen=True, kw_only=True):
    """An order met what it is meant for."""

    id: int
    by: str
    """The process in which it was."""
    what: str
    is_passed: bool = False
    """Whether it was let pass, because others are to pass before it."""


def add_fault_rule(path: Path, order: FaultRule) -> None:
    """Let all processes of the play follow *order* from now on. Blocks for a moment."""
    with path.open("ab", buffering=0) as file:
        file.write(msgspec.json.encode(order) + b"\n")


def read_injected_faults(path: Path) -> list[InjectedFault]:
    """What went wrong so far by the orders in *path*, in the order in which it happened. Blocks."""
    book = _record_path(path)
    lines = book.read_bytes().splitlines() if book.exists() else []
    strikes = (msgspec.json.decode(line, type=InjectedFault) for line in lines)
    return [strike for strike in strikes if not strike.is_passed]


@attrs.define(eq=False)
class FaultRules:
    """The orders in a file, as one process follows them."""

    path: Path
    process: str
    _size: int = attrs.field(default=0, init=False)
    _rules: tuple[FaultRule, ...] = attrs.field(default=(), init=False)

    def current(self) -> tuple[FaultRule, ...]:
        """All that were given so far; read again only when there are more."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return ()
        if size != self._size:
            lines = self.path.read_bytes().splitlines()
            self._rules, self._size = tuple(msgspec.json.decode(line, type=FaultRule) for line in lines), size
        return self._rules

    def should_inject(self, order: FaultRule, what: str) -> bool:
        """Whether *order* strikes this time, which is written down either way."""
        with _locked(_record_path(self.path)) as book:
            met = [strike for strike in _read(book) if strike.id == order.id]
            struck = sum(not strike.is_passed for strike in met)
            if order.times is not None and struck >= order.times:
                return False
            is_passed = len(met) < order.after
            strike = InjectedFault(id=order.id, by=self.process, what=what, is_passed=is_passed)
            os.write(book, msgspec.json.encode(strike) + b"\n")
            return not is_passed


@attrs.frozen
class FileFaultInjector:
    """A `FaultHook` by orders."""

    _rules: FaultRules

    def before(self, operation: Operation, path: Path, size: int) -> int:
        """As `FaultHook.before`."""
        for order in self._rules.current():
            if (deed := _as_file_fault(order)) is None or _OPERATIONS[deed] != operation:
                continue
            if order.target not in ("", self._rules.process) or not path.match(order.files):
                continue
            if self._rules.should_inject(order, f"{deed}: {path}"):
                return _inject(deed, path, size, order.seed)
        return size


@attrs.frozen
class MailFaultInjector:
    """`MailFaults` by orders."""

    _rules: FaultRules

    def trigger(self, deed: MailFault, way: MailRoute, recipient: str) -> float | None:
        """As `MailFaults.trigger`."""
        for order in self._rules.current():
            is_meant = order.do == deed and order.transport == way and order.target in ("", recipient)
            if is_meant and self._rules.should_inject(order, f"{deed}: mail to {recipient} by {way}"):
                return order.seconds
        return None


def _as_file_fault(order: FaultRule) -> FileFault | None:
    return next((deed for deed in _OPERATIONS if deed == order.do), None)


def _inject(deed: FileFault, path: Path, size: int, seed: int) -> int:
    if deed == "torn_write":
        return random.Random(seed).randrange(size) if size else 0  # noqa: S311 - repeatable, not secret
    number = errno.ENOSPC if deed == "disk_full" else errno.EIO
    raise OSError(number, os.strerror(number), str(path))


def _record_path(path: Path) -> Path:
    return path.with_suffix(".struck")


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _read(book: int) -> list[InjectedFault]:
    content, offset = b"", 0
    while chunk := os.pread(book, RECORD_BYTES, offset):
        content, offset = content + chunk, offset + len(chunk)
    return [msgspec.json.decode(line, type=InjectedFault) for line in content.splitlines()]
