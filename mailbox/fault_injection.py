"""Faults that a scenario injects into file writes and mail: rules in one file, their matches in another.

Rules can be added while processes run. All processes record their matches in one file under a lock, so that a rule with
one injection fires once, even if processes are restarted. The record file is written without `coterie.files`, because
it must stay correct while that module simulates a full disk.
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
_OPERATIONS: dict[MailFault | FileFault, Operation] = {
    "torn_write": "write",
    "disk_full": "write",
    "fsync_fails": "fsync",
    "rename_fails": "rename",
}


class FaultRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rule that injects one kind of fault into matching file operations or messages."""

    id: int
    do: MailFault | FileFault
    target: str = ""
    """For mail: the recipient. For files: the agent whose process writes, or `root` (the supervisor). Empty: any."""
    transport: MailRoute | None = None
    files: str = "*"
    """Pattern of file paths, such as `*.jsonl` or `ada/*.jsonl`, compared with their last parts (`Path.match`)."""
    after: int = 0
    """Number of matches to skip before the first injection."""
    times: int | None = 1
    """Number of injections, after which the rule has no effect; None: no limit."""
    seconds: float = 0.0
    """Duration of the fault `delay` in seconds; other faults ignore it."""
    seed: int = 0


class InjectedFault(msgspec.Struct, frozen=True, kw_only=True):
    """Record of a match of a fault rule: the fault was injected, or skipped because of `FaultRule.after`."""

    id: int
    by: str
    """Name of the process in which the rule matched."""
    what: str
    is_passed: bool = False
    """True if the match was skipped because of `FaultRule.after`, so that no fault was injected."""


def add_fault_rule(path: Path, rule: FaultRule) -> None:
    """Append *rule* to the rule file *path*, which all processes of the scenario follow. Blocks briefly."""
    with path.open("ab", buffering=0) as file:
        file.write(msgspec.json.encode(rule) + b"\n")


def read_injected_faults(path: Path) -> list[InjectedFault]:
    """Return the faults that the rules in the file *path* have injected so far, in order of time. Blocks."""
    record_file = _record_path(path)
    lines = record_file.read_bytes().splitlines() if record_file.exists() else []
    injected = (msgspec.json.decode(line, type=InjectedFault) for line in lines)
    return [record for record in injected if not record.is_passed]


@attrs.define(eq=False)
class FaultRules:
    """Applies the fault rules in the file *path* to the file operations and the mail of one process."""

    path: Path
    process: str
    _size: int = attrs.field(default=0, init=False)
    _rules: tuple[FaultRule, ...] = attrs.field(default=(), init=False)

    def current(self) -> tuple[FaultRule, ...]:
        """Return all rules in the file; empty if it does not exist. The file is read only if its size has changed."""
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return ()
        if size != self._size:
            lines = self.path.read_bytes().splitlines()
            self._rules, self._size = tuple(msgspec.json.decode(line, type=FaultRule) for line in lines), size
        return self._rules

    def should_inject(self, rule: FaultRule, what: str) -> bool:
        """Return True if *rule*, which matches now, is to inject its fault, and record the match with the text *what*.

        False if `rule.after` skips this match. Also False, without a record, if the fault was injected `rule.times`
        times.
        """
        with _locked(_record_path(self.path)) as record_file:
            lines = os.pread(record_file, os.fstat(record_file).st_size, 0).splitlines()
            records = (msgspec.json.decode(line, type=InjectedFault) for line in lines)
            matches = [record for record in records if record.id == rule.id]
            injected_count = sum(not record.is_passed for record in matches)
            if rule.times is not None and injected_count >= rule.times:
                return False
            is_passed = len(matches) < rule.after
            record = InjectedFault(id=rule.id, by=self.process, what=what, is_passed=is_passed)
            os.write(record_file, msgspec.json.encode(record) + b"\n")
            return not is_passed

    def before(self, operation: Operation, path: Path, size: int) -> int:
        """Apply the rules to a file operation: raise `OSError`, or return how many of *size* bytes to write.

        Return *size* if no rule injects a fault.
        """
        for rule in self.current():
            if _OPERATIONS.get(rule.do) != operation:
                continue
            if rule.target not in ("", self.process) or not path.match(rule.files):
                continue
            if not self.should_inject(rule, f"{rule.do}: {path}"):
                continue
            if rule.do == "torn_write":
                return random.Random(rule.seed).randrange(size) if size else 0  # noqa: S311 - repeatable, not secret
            number = errno.ENOSPC if rule.do == "disk_full" else errno.EIO
            raise OSError(number, os.strerror(number), str(path))
        return size

    def trigger(self, fault: MailFault, route: MailRoute, recipient: str) -> float | None:
        """Return `seconds` of the rule that injects *fault* into a message now, and record it; None if no rule does."""
        for rule in self.current():
            is_match = rule.do == fault and rule.transport == route and rule.target in ("", recipient)
            if is_match and self.should_inject(rule, f"{fault}: mail to {recipient} by {route}"):
                return rule.seconds
        return None


def _record_path(path: Path) -> Path:
    return path.with_suffix(".injected_count")


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)
