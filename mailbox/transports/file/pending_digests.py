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
    """What is not acknowledged in each mailbox below *directory*; those where nothing waits are left out.

    To be believed without a MAC: it was signed with keys that are lost, or not at all. So it must be noted before
    anybody begins who could forge mail. A place in a log would not do instead: what stands before it can be written
    over, and another log can be put there. Nothing is taken, and nobody is locked out. Blocks. Raises `MailboxFailed`.
    """
    try:
        mailboxes = [entry for entry in directory.glob("*/") if segment_numbers(entry)]
        noted = {mailbox.name: frozenset(_pending_digests(mailbox)) for mailbox in mailboxes}
    except OSError as exc:
        raise MailboxFailed(str(directory), f"cannot be read: {exc.strerror}") from exc
    return {name: digests for name, digests in noted.items() if digests}


def needs_turn(mailbox: Path) -> bool:
    """Whether something is not acknowledged in the directory *mailbox* that would wake its owner. Blocks.

    What cannot be read counts as such: its owner will say what is wrong with it. So does what was acknowledged, and
    deleted, while this looked.
    """
    try:
        return any(envelope.kind not in NEVER_WAKES for envelope in _read_pending(mailbox))
    except OSError:
        return True


def _pending_digests(mailbox: Path) -> list[MessageDigest]:
    return [message_digest(envelope) for envelope in _read_pending(mailbox)]


def _read_pending(mailbox: Path) -> Iterator[Envelope]:
    with closing(LogReader.from_cursor(mailbox, find_cursor(mailbox))) as reading:
        while (line := reading.next_record()) is not None:
            reading.skip_record(line)
            try:
                yield parse_record(line.content)
            except EnvelopeCorrupt:
                continue  # its reader buries it
