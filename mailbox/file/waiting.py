"""What waits in the mailboxes of a session, as digests: by these it is known again, whatever is done to the logs."""

from contextlib import closing
from pathlib import Path

from coterie.mailbox.errors import EnvelopeCorrupt, MailboxFailed
from coterie.mailbox.file.reading import Reading, find_cursor
from coterie.mailbox.file.segments import segment_numbers
from coterie.mailbox.file.tail import read_record
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


def _digests_in(mailbox: Path) -> list[Digest]:
    found: list[Digest] = []
    with closing(Reading.from_cursor(mailbox, find_cursor(mailbox))) as reading:
        while (line := reading.next_line()) is not None:
            reading.pass_line(line)
            try:
                found.append(digest_of(read_record(line.content)))
            except EnvelopeCorrupt:
                continue  # its reader buries it
    return found
