"""The memory files below a directory as they are on disk now; what one of them is like never keeps the others back."""

import codecs
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from coterie.memory.errors import MemoryRefused
from coterie.memory.store.confined import Confined, open_confined
from coterie.memory.store.index import is_memory
from coterie.memory.store.names import DEEPEST, SUFFIX


class MemoryFile(NamedTuple):
    """A file, and what tells two versions of it apart without reading them."""

    path: str
    """Relative to the directory, with `/`."""
    modified: int
    """Nanoseconds since the epoch."""
    size: int
    inode: int


def list_memories(directory: Path) -> list[MemoryFile]:
    """All files `*.md` below *directory* but the index, daily logs and dot names, in no order. Blocks on the disk.

    Links are not followed; what cannot be looked into is left out, and so are names that cannot be shown.
    """
    return list(_listed(f"{directory}/", "", DEEPEST))


def _listed(directory: str, below: str, depth: int) -> Iterator[MemoryFile]:
    try:
        with os.scandir(directory + below) as entries:
            found = [entry for entry in entries if entry.name[0] != "." and entry.name.isprintable()]
    except OSError:
        return
    for entry in found:
        path = below + entry.name
        if path.endswith(SUFFIX):
            if is_memory(path) and (file := _file(path, entry)) is not None:
                yield file
        elif depth > 1 and is_memory(f"{path}/") and entry.is_dir(follow_symlinks=False):
            yield from _listed(directory, f"{path}/", depth - 1)


def _file(path: str, entry: os.DirEntry[str]) -> MemoryFile | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return MemoryFile(path, status.st_mtime_ns, status.st_size, status.st_ino)


@contextmanager
def open_memories(directory: Path) -> Iterator[Confined | None]:
    """The directory, to read from; None if there is none that can be used."""
    with ExitStack() as stack:
        memories = None
        with suppress(OSError, MemoryRefused):
            memories = stack.enter_context(open_confined(directory))
        yield memories


def read_beginning(memories: Confined, path: str, limit: int) -> bytes | None:
    """The first *limit* bytes of a file, without a last character that is cut; None for what cannot be read."""
    try:
        # Thousands lie at the top, where there is nothing to walk through: that takes a third of the time.
        content = memories.read(path, limit) if "/" in path else _read_at_top(memories.descriptor, path, limit)
    except (OSError, MemoryRefused):
        return None
    if content is None or len(content) < limit:
        return content
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(content[-4:])  # no character is longer
    cut, _ = decoder.getstate()
    return content[: len(content) - len(cut)]


def _read_at_top(directory: int, name: str, limit: int) -> bytes | None:
    # A pipe in the place of a file must not make anybody wait.
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        return os.read(descriptor, limit) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    finally:
        os.close(descriptor)
