"""Roster, envelopes, faulty disk and transport for tests of the file mailbox."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs

from coterie.clock import Clock
from coterie.files import Operation, file_faults
from coterie.mailbox.contract import DeadLetter, Inbox, MailLimits, Member
from coterie.mailbox.envelope import Envelope, Recipient, Sender
from coterie.mailbox.transports.file.transport import Durability, FileTransport

KEY = b"k" * 32


class OneKey:
    """Keys with the same key for every sender."""

    def key_of(self, _sender: Sender) -> bytes:
        """As `Keys.key_of`."""
        return KEY


@attrs.frozen
class Names:
    """A roster that never changes."""

    names: tuple[str, ...] = ("ada", "bob")

    def members(self) -> Mapping[str, Member]:
        """As `Roster.members`."""
        return {name: Member(name=name, incarnation=1) for name in self.names}


@attrs.define(eq=False)
class DeadLetterList:
    """Dead letters, kept in memory."""

    letters: list[DeadLetter] = attrs.field(factory=list)

    def add(self, letter: DeadLetter) -> None:
        """As `StoreDeadLetter`."""
        self.letters.append(letter)

    def reasons(self) -> list[str]:
        """Reasons of all dead letters, in order."""
        return [letter.reason for letter in self.letters]


@attrs.define(eq=False)
class FailsFrom:
    """Fails every operation from the *number*-th on, as if the process had died; a write is torn first if *is_torn*."""

    number: int
    is_torn: bool = True
    count: int = 0

    def before(self, operation: Operation, path: Path, size: int) -> int:
        """As `FaultHook.before`."""
        self.count += 1
        if self.count == self.number and operation == "write" and self.is_torn:
            return size // 2
        if self.count >= self.number:
            raise OSError(5, "Input/output error", str(path))
        return size


@attrs.define(eq=False)
class Disk:
    """Simulated disk that knows which bytes of each log are synced, and can lose the others in a power cut."""

    faults: FailsFrom | None = None
    synced: dict[int, int] = attrs.field(factory=dict)
    """Inode -> bytes."""

    def before(self, operation: Operation, path: Path, size: int) -> int:
        """As `FaultHook.before`."""
        allowed = size if self.faults is None else self.faults.before(operation, path, size)
        if operation == "fsync" and path.suffix == ".log":
            status = path.stat()
            self.synced[status.st_ino] = status.st_size
        return allowed

    @contextmanager
    def failing(self, faults: FailsFrom) -> Iterator[None]:
        """Let operations fail until the block ends."""
        self.faults = faults
        try:
            yield
        finally:
            self.faults = None

    def cut_power(self, directory: Path, share: float = 0.0, *, keeps_length: bool = False) -> None:
        """Lose the unsynced bytes of the logs in *directory*, except for a *share* that the kernel had written.

        With *keeps_length*, the files keep their length and end in zeros, as on some file systems.
        """
        for path in directory.glob("*.log"):
            status = path.stat()
            synced = self.synced.get(status.st_ino, 0)
            os.truncate(path, synced + int((status.st_size - synced) * share))
            if keeps_length:
                os.truncate(path, status.st_size)


def crash(mail: FileTransport) -> None:
    """Close all descriptors of *mail* as if its process had been killed: nothing is synced or cleaned up."""
    with file_faults(FailsFrom(1, is_torn=False)):
        mail.close()


def envelope(sequence: int, body: str = "hello", *, to: str = "ada", sender: str = "bob") -> Envelope:
    """Build an unsigned message."""
    return Envelope(
        sender=Sender(name=sender, incarnation=1, session="s1", kind="peer"),
        recipient=Recipient(name=to),
        sequence=sequence,
        body=body,
        created=1000.0,
    )


def transport(
    directory: Path,
    dead_letters: DeadLetterList | None = None,
    *,
    limits: MailLimits | None = None,
    durability: Durability = "process",
    segment_bytes: int = 8 * 1024 * 1024,
) -> FileTransport:
    """Open a file transport without keys over *directory*."""
    return FileTransport(
        directory,
        Names(),
        None,
        Clock(),
        (dead_letters or DeadLetterList()).add,
        limits or MailLimits(),
        durability,
        segment_bytes,
    )


def take_sequences(inbox: Inbox) -> list[int]:
    """Take all messages and return their sequence numbers."""
    return [delivery.envelope.sequence for delivery in inbox.take_nowait()]
