"""A look at the newest memories: what each is about, in a line for a model to choose from."""

import datetime as dt
import heapq
from collections.abc import Iterable
from pathlib import Path

import attrs

from coterie.memory.recall.files import MemoryFile, list_memories, open_memories, read_beginning
from coterie.memory.recall.heads import read_memory
from coterie.memory.store.confined import Confined
from coterie.memory.store.topic import MemoryType

LINES = 30
"""Of a file that are read to know what it is about."""
HEAD = 16 * 1024
"""Bytes that so many lines may take; what is longer is no head."""


@attrs.frozen(kw_only=True)
class Scanned:
    """A memory that could be recalled."""

    path: str
    """Relative to the store."""
    name: str
    description: str
    type: MemoryType | None
    modified: float
    """Seconds since the epoch."""

    @property
    def line(self) -> str:
        """What the model is told of it."""
        kind = f"[{self.type}] " if self.type else ""
        at = dt.datetime.fromtimestamp(self.modified, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        about = f": {self.description}" if self.description else ""
        return f"- {kind}{self.path} ({at}){about}"


def scan(directory: Path, most: int = 200) -> list[Scanned]:
    """The *most* newest memories below *directory*, the newest first. Blocks; what cannot be read is left out."""
    return scan_files(directory, heapq.nsmallest(most, list_memories(directory), key=_newest_first))


def scan_files(directory: Path, files: Iterable[MemoryFile]) -> list[Scanned]:
    """What *files* are about, in their order. Blocks; what cannot be read is left out."""
    with open_memories(directory) as memories:
        found = [_scanned(memories, file) for file in files] if memories else []
    return [scanned for scanned in found if scanned is not None]


def _newest_first(file: MemoryFile) -> tuple[int, str]:
    return -file.modified, file.path


def _scanned(memories: Confined, file: MemoryFile) -> Scanned | None:
    content = read_beginning(memories, file.path, HEAD)
    if content is None:
        return None
    topic = read_memory(b"\n".join(content.split(b"\n", LINES)[:LINES]) + b"\n", file.path)
    return Scanned(
        path=file.path,
        name=topic.name,
        description=topic.description,
        type=topic.type,
        modified=file.modified / 1e9,
    )
