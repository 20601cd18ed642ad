"""What waits in the mailboxes of a session, as digests: by these it is known again, whatever is done to the logs."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import EnvelopeCorrupt, MailboxFailed
from coterie.mailbox.file.reading import Reading, find_cursor
from coterie.mailbox.file.segments import segment_numbers
from coterie.mailbox.file.tail import read_record
from coterie.mailbox.policy import NEVER_WAKES
from coterie.mailbox.screen import Digest, digest_of


def note_waiting(directory: Path) -> dict[str, frozenset[Digest]]:
    """What is not acknowledged in each mailbox below *directory*; those where nothing waits are left out.

    To be believed without a MAC: it was signed with keys that are lost, or not at all. So it must be noted before
    anybody begins who could forge mail. A place in a log would not do instead: what stands before it can be written
    over, and another log can be put there. Nothing is taken, and nobody is locked out. Blocks. Raises `MailboxFailed`.
    """
    try:
        mailboxes = [entry for entry in directory.glob("*/") if segment_numbers(entry)]
        noted = {mailbox.name: frozenset(_digests_in(mailbox)) for mailbox in mailboxes}
    except OSError as exc:
        raise MailboxFailed(str(directory), f"cannot be read: {exc.strerror}") from exc
    return {name: digests for name, digests in noted.items() if digests}


def is_worth_a_turn(mailbox: Path) -> bool:
    """Whether something is not acknowledged in the directory *mailbox* that would wake its owner. Blocks.

    What cannot be read counts as such: its owner will say what is wrong with it. So does what was acknowledged, and
    deleted, while this looked.
    """
    try:
        return any(envelope.kind not in NEVER_WAKES for envelope in _waiting_in(mailbox))
    except OSError:
        return True


def _digests_in(mailbox: Path) -> list[Digest]:
    return [digest_of(envelope) for envelope in _waiting_in(mailbox)]


def _waiting_in(mailbox: Path) -> Iterator[Envelope]:
    with closing(Reading.from_cursor(mailbox, find_cursor(mailbox))) as reading:
        while (line := reading.next_line()) is not None:
            reading.pass_line(line)
            try:
                yield read_record(line.content)
            except EnvelopeCorrupt:
                continue  # its reader buries it
