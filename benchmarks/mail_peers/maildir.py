"""Maildir: a file for each message, written elsewhere and renamed; with the standard library, and with bare calls."""

import mailbox  # noqa: TID251 - the module of the standard library, as a peer
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import attrs
import trio

from benchmarks.mail_peers.default_fill import send_each
from benchmarks.mail_peers.peer import BATCH, POLL, Box, Peer


class _Folder(Protocol):
    """One maildir."""

    def add(self, body: str) -> None: ...

    def keys(self) -> list[str]: ...

    def read(self, key: str) -> str: ...

    def remove(self, key: str) -> None: ...


@attrs.define(eq=False)
class _BareFolder:
    """Minimal maildir: no sync, and names that usually sort by time."""

    _path: Path
    _writer: int
    _count: int = 0

    def __attrs_post_init__(self) -> None:
        for name in ("tmp", "new"):
            (self._path / name).mkdir(parents=True, exist_ok=True)

    def add(self, body: str) -> None:
        self._count += 1
        name = f"{time.time_ns()}.{os.getpid()}.{self._writer}.{self._count:09}"
        draft = self._path / "tmp" / name
        draft.write_text(body)
        draft.rename(self._path / "new" / name)

    def keys(self) -> list[str]:
        return os.listdir(self._path / "new")  # noqa: PTH208 - only names are needed

    def read(self, key: str) -> str:
        return (self._path / "new" / key).read_text()

    def remove(self, key: str) -> None:
        (self._path / "new" / key).unlink()


@attrs.define(eq=False)
class _LibraryFolder:
    _maildir: mailbox.Maildir

    def add(self, body: str) -> None:
        self._maildir.add(body.encode())

    def keys(self) -> list[str]:
        return self._maildir.keys()

    def read(self, key: str) -> str:
        return self._maildir.get_bytes(key).decode().rstrip("\n")

    def remove(self, key: str) -> None:
        self._maildir.remove(key)


@attrs.define(eq=False)
class _Sending:
    _folder: _Folder

    async def send(self, body: str) -> None:
        self._folder.add(body)


@attrs.define(eq=False)
class _Receiving:
    _folder: _Folder
    _listed: deque[str] = attrs.field(factory=deque)
    """Entries of the last listing that were not taken: a listing for every batch would cost more than reading."""
    _taken: list[str] = attrs.field(factory=list)

    async def receive(self, limit: int = BATCH) -> list[str]:
        while not self._listed:
            self._listed.extend(sorted(set(self._folder.keys()).difference(self._taken)))
            if not self._listed:
                await trio.sleep(POLL)
        keys = [self._listed.popleft() for _ in range(min(limit, len(self._listed)))]
        self._taken += keys
        return [self._folder.read(key) for key in keys]

    async def acknowledge(self) -> None:
        for key in self._taken:
            self._folder.remove(key)
        self._taken.clear()


@attrs.frozen
class _MaildirMailboxes:
    directory: Path
    is_library: bool

    @asynccontextmanager
    async def open_sender(self, box: Box, writer: int) -> AsyncIterator[_Sending]:
        yield _Sending(self._folder(box, writer))

    @asynccontextmanager
    async def open_receiver(self, box: Box) -> AsyncIterator[_Receiving]:
        yield _Receiving(self._folder(box, 0))

    async def fill(self, box: Box, bodies: Sequence[str]) -> int:
        return await send_each(self, box, bodies)

    def _folder(self, box: Box, writer: int) -> _Folder:
        path = self.directory / box
        return _LibraryFolder(mailbox.Maildir(path)) if self.is_library else _BareFolder(path, writer)


@asynccontextmanager
async def _open_mailboxes(directory: Path, *, is_library: bool) -> AsyncIterator[_MaildirMailboxes]:
    yield _MaildirMailboxes(directory, is_library)


MAILDIR = Peer(
    name="maildir",
    survives="kill -9",
    promises="order by the clock only, acknowledged by deleting; polled",
    open_post=partial(_open_mailboxes, is_library=False),
)
LIBRARY_MAILDIR = Peer(
    name="mailbox.Maildir",
    survives="kill -9",
    promises="syncs a message but not its name, order by the clock only, acknowledged by deleting; polled",
    open_post=partial(_open_mailboxes, is_library=True),
)
