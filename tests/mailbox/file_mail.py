"""What tests of the file mailbox are made of: a roster, envelopes, and a transport that remembers its dead."""

from collections.abc import Mapping
from pathlib import Path

import attrs

from coterie.clock import Clock
from coterie.files import Operation
from coterie.mailbox.contract import DeadLetter, Inbox, Limits, Member
from coterie.mailbox.envelope import Envelope, Recipient, Sender
from coterie.mailbox.file import Durability, FileTransport


@attrs.frozen
class Names:
    """A roster that never changes."""

    names: tuple[str, ...] = ("ada", "bob")

    def members(self) -> Mapping[str, Member]:
        """As `Roster.members`."""
        return {name: Member(name=name, incarnation=1) for name in self.names}


@attrs.define(eq=False)
class Graveyard:
    """Keeps dead letters in memory."""

    letters: list[DeadLetter] = attrs.field(factory=list)

    def bury(self, letter: DeadLetter) -> None:
        """As `Bury`."""
        self.letters.append(letter)

    def reasons(self) -> list[str]:
        """Why they died, in order."""
        return [letter.reason for letter in self.letters]


@attrs.define(eq=False)
class FailsFrom:
    """From the *number*-th operation on every one fails, as if the process had died there; a write is torn first."""

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


def envelope(sequence: int, body: str = "hello", *, to: str = "ada", sender: str = "bob") -> Envelope:
    """A plain message."""
    return Envelope(
        sender=Sender(name=sender, incarnation=1, session="s1", kind="peer"),
        recipient=Recipient(name=to),
        sequence=sequence,
        body=body,
        created=1000.0,
    )


def transport(
    directory: Path,
    graveyard: Graveyard | None = None,
    *,
    limits: Limits | None = None,
    durability: Durability = "process",
    segment_bytes: int = 8 * 1024 * 1024,
) -> FileTransport:
    """A file transport without keys over *directory*."""
    return FileTransport(
        directory,
        Names(),
        None,
        Clock(),
        (graveyard or Graveyard()).bury,
        limits or Limits(),
        durability,
        segment_bytes,
    )


def take(inbox: Inbox) -> list[int]:
    """Take everything; the sequence numbers of it."""
    return [delivery.envelope.sequence for delivery in inbox.take_nowait()]
