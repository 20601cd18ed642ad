"""Digests of the unacknowledged messages in the mailboxes of a session."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import EnvelopeCorrupt, MailboxFailed
from coterie.mailbox.policy import NEVER_WAKES
from coterie.mailbox.transports.file.log_reader import LogReader, find_cursor
from coterie.mailbox.transports.file.log_segments import segment_numbers
from coterie.mailbox.transports.file.segment_reader import parse_record
from coterie.mailbox.validation import MessageDigest, message_digest


def snapshot_pending(directory: Path) -> dict[str, frozenset[MessageDigest]]:
    """Return the digests of unacknowledged messages by mailbox below *directory*; empty mailboxes are left out.

    These messages are accepted without a MAC, because their keys are lost or never existed. So call this before any
    process starts that could forge mail. A log position would not be enough, because the log before it could be
    overwritten or replaced. Takes no message and no lock. Blocks. Raises `MailboxFailed`.
    """
    try:
        mailboxes = [entry for entry in directory.glob("*/") if segment_numbers(entry)]
        digests_by_name = {mailbox.name: frozenset(map(message_digest, read_pending(mailbox))) for mailbox in mailboxes}
    except OSError as exc:
        raise MailboxFailed(str(directory), f"cannot be read: {exc.strerror}") from exc
    return {name: digests for name, digests in digests_by_name.items() if digests}


def needs_turn(mailbox: Path) -> bool:
    """True if an unacknowledged message in the directory *mailbox* is of a kind that wakes its owner. Blocks.

    Unreadable mail also counts, because its owner must report the error. So does mail that was acknowledged and deleted
    during this call.
    """
    try:
        return any(envelope.kind not in NEVER_WAKES for envelope in read_pending(mailbox))
    except OSError:
        return True


def read_pending(mailbox: Path) -> Iterator[Envelope]:
    """Yield the unacknowledged messages in the directory *mailbox*, oldest first. Blocks. Raises `OSError`."""
    with closing(LogReader.from_cursor(mailbox, find_cursor(mailbox))) as reader:
        while (line := reader.next_record()) is not None:
            reader.skip_record(line)
            try:
                yield parse_record(line.content)
            except EnvelopeCorrupt:
                continue  # the reader of the mailbox dead-letters it
