"""Ways to pass messages between processes, ours among them, behind one interface."""

from benchmarks.mail_peers.enveloped import enveloped
from benchmarks.mail_peers.in_memory import QUEUE, SOCKET
from benchmarks.mail_peers.json_array import JSON_ARRAY
from benchmarks.mail_peers.maildir import LIBRARY_MAILDIR, MAILDIR
from benchmarks.mail_peers.ours import OURS_POWER, OURS_PROCESS
from benchmarks.mail_peers.peer import Peer, Post
from benchmarks.mail_peers.persist_queue import PERSIST_QUEUE
from benchmarks.mail_peers.redis_streams import REDIS_ALWAYS, REDIS_EVERYSEC
from benchmarks.mail_peers.sqlite_queue import SQLITE_FULL, SQLITE_NORMAL

PEERS = (
    OURS_PROCESS,
    JSON_ARRAY,
    MAILDIR,
    LIBRARY_MAILDIR,
    SQLITE_NORMAL,
    enveloped(SQLITE_NORMAL),
    REDIS_EVERYSEC,
    enveloped(REDIS_EVERYSEC),
    OURS_POWER,
    SQLITE_FULL,
    enveloped(SQLITE_FULL),
    PERSIST_QUEUE,
    REDIS_ALWAYS,
    enveloped(REDIS_ALWAYS),
    QUEUE,
    SOCKET,
)

__all__ = ["OURS_POWER", "OURS_PROCESS", "PEERS", "REDIS_EVERYSEC", "Peer", "Post"]
