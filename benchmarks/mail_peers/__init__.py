"""Ways to pass messages between processes, including Coterie's, behind one interface."""

from benchmarks.mail_peers.coterie_file import OURS_POWER, OURS_PROCESS
from benchmarks.mail_peers.in_memory import QUEUE, SOCKET
from benchmarks.mail_peers.json_array import JSON_ARRAY
from benchmarks.mail_peers.maildir import LIBRARY_MAILDIR, MAILDIR
from benchmarks.mail_peers.peer import Mailboxes, Peer
from benchmarks.mail_peers.persist_queue import PERSIST_QUEUE
from benchmarks.mail_peers.redis_streams import REDIS_ALWAYS, REDIS_ALWAYS_BARE, REDIS_EVERYSEC, REDIS_EVERYSEC_BARE
from benchmarks.mail_peers.signed_envelopes import enveloped
from benchmarks.mail_peers.sqlite_queue import SQLITE_FULL, SQLITE_NORMAL

PEERS = (
    OURS_PROCESS,
    JSON_ARRAY,
    MAILDIR,
    LIBRARY_MAILDIR,
    SQLITE_NORMAL,
    enveloped(SQLITE_NORMAL),
    REDIS_EVERYSEC,
    REDIS_EVERYSEC_BARE,
    enveloped(REDIS_EVERYSEC_BARE),
    OURS_POWER,
    SQLITE_FULL,
    enveloped(SQLITE_FULL),
    PERSIST_QUEUE,
    REDIS_ALWAYS,
    REDIS_ALWAYS_BARE,
    enveloped(REDIS_ALWAYS_BARE),
    QUEUE,
    SOCKET,
)

__all__ = ["OURS_POWER", "OURS_PROCESS", "PEERS", "REDIS_EVERYSEC", "Mailboxes", "Peer"]
