"""Mail between processes: a mailbox is a directory of logs, and sending is one append."""

from coterie.mailbox.file.transport import Durability, FileTransport

__all__ = ["Durability", "FileTransport"]
