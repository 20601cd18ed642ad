"""A queue in an SQLite table, with a write-ahead log and one transaction per message."""

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Literal

import attrs
import trio

from benchmarks.mail_peers.peer import BATCH, POLL, Box, Peer

_BUSY_SECONDS = 20.0
_INSERT = "INSERT INTO message (body) VALUES (?)"

Synchronous = Literal["NORMAL", "FULL"]


@attrs.define(eq=False)
class _Sending:
    _database: sqlite3.Connection

    async def send(self, body: str) -> None:
        self._database.execute(_INSERT, (body,))


@attrs.define(eq=False)
class _Receiving:
    _database: sqlite3.Connection
    _last: int = 0

    async def receive(self, limit: int = BATCH) -> list[str]:
        query = "SELECT id, body FROM message WHERE id > ? ORDER BY id LIMIT ?"
        while not (found := self._database.execute(query, (self._last, limit)).fetchall()):  # noqa: ASYNC110 - there is no wakeup
            await trio.sleep(POLL)
        self._last = found[-1][0]
        return [body for _, body in found]

    async def acknowledge(self) -> None:
        self._database.execute("DELETE FROM message WHERE id <= ?", (self._last,))


@attrs.frozen
class _TableMailboxes:
    directory: Path
    synchronous: Synchronous

    @asynccontextmanager
    async def open_sender(self, box: Box, _writer: int) -> AsyncIterator[_Sending]:
        with closing(self.connect(box)) as database:
            yield _Sending(database)

    @asynccontextmanager
    async def open_receiver(self, box: Box) -> AsyncIterator[_Receiving]:
        with closing(self.connect(box)) as database:
            yield _Receiving(database)

    async def fill(self, box: Box, bodies: Sequence[str]) -> int:
        with closing(self.connect(box)) as database:
            database.execute("BEGIN")
            database.executemany(_INSERT, ((body,) for body in bodies))
            database.execute("COMMIT")
        return len(bodies)

    def connect(self, box: Box) -> sqlite3.Connection:
        # Without an isolation level, every statement is its own transaction.
        database = sqlite3.connect(self.directory / f"{box}.db", timeout=_BUSY_SECONDS, isolation_level=None)
        database.execute(f"PRAGMA synchronous={self.synchronous}")
        return database


@asynccontextmanager
async def _open_mailboxes(synchronous: Synchronous, directory: Path) -> AsyncIterator[_TableMailboxes]:
    post = _TableMailboxes(directory, synchronous)
    boxes: tuple[Box, ...] = ("left", "right")
    for box in boxes:
        with closing(post.connect(box)) as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("CREATE TABLE message (id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL)")
    yield post


_PROMISES = "order, acknowledged by deleting; polled"

SQLITE_NORMAL = Peer(
    name="SQLite WAL, normal",
    survives="kill -9",
    promises=_PROMISES,
    open_post=partial(_open_mailboxes, "NORMAL"),
)
SQLITE_FULL = Peer(
    name="SQLite WAL, full",
    survives="power cut",
    promises=_PROMISES,
    open_post=partial(_open_mailboxes, "FULL"),
)
