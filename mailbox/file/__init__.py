"""Mail between processes: a mailbox is a directory of logs, and sending is one append."""

from coterie.mailbox.file.transport import Durability, FileTransport
from coterie.mailbox.file.waiting import note_waiting

__all__ = ["Durability", "FileTransport", "note_waiting"]
