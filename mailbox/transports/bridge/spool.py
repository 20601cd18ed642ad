"""Spool: directory of messages that are held or wait for another session, one numbered file for each message."""

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
from filelock import FileLock, Timeout

from coterie.clock import Clock
from coterie.files import check_record, frame_record, replace_file
from coterie.mailbox.address import check_name
from coterie.mailbox.contract import Backlog, DeadLetter, DeadReason, MailLimits, StoreDeadLetter
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.errors import EnvelopeCorrupt, MailboxFailed, MailboxFull
from coterie.mailbox.transports.bridge.socket_path import hold_lock_file

LOCK_TIMEOUT = 10.0
SUFFIX = ".json"

_FILE = re.compile(rf"\d{{12}}-.+\{SUFFIX}")


@attrs.define(eq=False)
class Spool:
    """Directory of messages, in order of arrival. Any number of processes may write to it.

    All methods but `try_lock` block: call them from a thread. They raise `MailboxFailed` on a disk error.
    """

    directory: Path
    mailbox: str
    """Name of the mailbox in errors and dead letters: an address, or `held` for messages that wait for the user."""
    _store_dead_letter: StoreDeadLetter
    _clock: Clock
    _limits: MailLimits = attrs.field(factory=MailLimits)
    _expiries: dict[Path, float] = attrs.field(factory=dict, init=False)
    """Maps a file to the time at which its message expires, so that each file is read only once."""

    def put(self, envelope: Envelope) -> None:
        """Store *envelope* durably behind all other messages, unless a message with its id is stored already.

        Raises `NameInvalid` for an id that is not a valid file name, and `MailboxFull`.
        """
        id_ = check_name(envelope.id)
        with self._failures():
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            with FileLock(str(self.directory / "lock"), thread_local=False, timeout=LOCK_TIMEOUT):
                files = self.files()
                if any(_id_of(file) == id_ for file in files):
                    return
                size = sum(map(_size, files))
                if len(files) >= self._limits.messages:
                    raise MailboxFull(self.mailbox, len(files), self._limits.messages, "messages")
                if size >= self._limits.bytes:
                    raise MailboxFull(self.mailbox, size, self._limits.bytes, "bytes")
                number = int(files[-1].name.partition("-")[0]) + 1 if files else 1
                replace_file(self.directory / f"{number:012}-{id_}{SUFFIX}", frame_record(envelope.to_bytes()))

    def files(self) -> list[Path]:
        """Return the files of all messages, oldest first."""
        with self._failures():
            try:
                names = os.listdir(self.directory)  # noqa: PTH208 - plain names; ten thousand of them are sorted
            except FileNotFoundError:
                return []
        return [self.directory / name for name in sorted(names) if _FILE.fullmatch(name)]

    def find(self, id_: MessageId) -> Path | None:
        """Return the file of the message *id_*; None if there is no such message."""
        return next((file for file in self.files() if _id_of(file) == id_), None)

    def read(self, file: Path) -> Envelope | None:
        """Return the message in *file*; None if the file was removed, or was corrupt and now is a dead letter."""
        with self._failures():
            try:
                raw = file.read_bytes()
            except FileNotFoundError:
                return None
            try:
                return _parse(raw)
            except EnvelopeCorrupt as exc:
                now, detail = self._clock.now(), str(exc)
                self._store_dead_letter(
                    DeadLetter(reason="corrupt", detail=detail, mailbox=self.mailbox, at=now, envelope=None, raw=raw)
                )
                file.unlink(missing_ok=True)
                return None

    def peek(self, file: Path) -> Envelope | None:
        """Return the message in *file*; None if it is missing or corrupt. Leaves the file unchanged."""
        with self._failures():
            try:
                return _parse(file.read_bytes())
            except (FileNotFoundError, EnvelopeCorrupt):
                return None

    def backlog(self) -> Backlog:
        """Return number and bytes of all messages, corrupt ones too, and creation time of the oldest readable one."""
        with self._failures():
            files = self.files()
            envelopes = (self.peek(file) for file in files)
            oldest = next((envelope.created for envelope in envelopes if envelope is not None), None)
            return Backlog(messages=len(files), bytes=sum(_size(file) for file in files), oldest=oldest)

    def remove(self, file: Path) -> None:
        """Delete *file*, whose message was delivered. Idempotent."""
        with self._failures():
            file.unlink(missing_ok=True)

    def dead_letter(self, file: Path, envelope: Envelope, reason: DeadReason, detail: str) -> None:
        """Move the message in *file* to the dead letters."""
        with self._failures():
            self._store_dead_letter(DeadLetter.of(envelope, reason, detail, self.mailbox, self._clock.now()))
            file.unlink(missing_ok=True)

    @contextmanager
    def try_lock(self) -> Iterator[bool]:
        """Try to lock the removal of messages until the block ends; yield True, or False if another process has it."""
        with self._failures(), hold_lock_file(self.directory / "claim") as is_locked:
            yield is_locked

    def dead_letter_expired(self, keep: float) -> None:
        """Move messages that have expired, or that were created over *keep* seconds ago, to the dead letters."""
        now, files = self._clock.now(), self.files()
        self._expiries = {file: end for file, end in self._expiries.items() if file in files}
        for file in files:
            if file not in self._expiries and (envelope := self.read(file)) is not None:
                expires = math.inf if envelope.expires is None else envelope.expires
                self._expiries[file] = min(envelope.created + keep, expires)
        for file in [file for file, end in self._expiries.items() if now >= end]:
            if (envelope := self.read(file)) is not None:
                self.dead_letter(file, envelope, "expired", "the other session did not take it before it expired")

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except (OSError, Timeout) as exc:
            raise MailboxFailed(self.mailbox, str(exc)) from exc


def _parse(raw: bytes) -> Envelope:
    """Decode the message in *raw*, the content of a file. Raises `EnvelopeCorrupt` for invalid content."""
    line = raw.strip(b"\n")
    try:
        check_record(line)
    except ValueError as exc:
        raise EnvelopeCorrupt(str(exc)) from exc
    return Envelope.from_bytes(line)


def _id_of(file: Path) -> str:
    return file.name.partition("-")[2].removesuffix(SUFFIX)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # forwarded since the directory was listed
        return 0
