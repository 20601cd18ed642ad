"""Scan of a store's directory for memory files, and fast reading of their type, time and description."""

import codecs
import datetime as dt
import heapq
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import attrs

from coterie.memory.errors import MemoryRefused
from coterie.memory.store.confined_directory import ConfinedDirectory, open_confined
from coterie.memory.store.memory_entry import LONGEST_DESCRIPTION, TYPES, MemoryEntry, MemoryType, parse_entry
from coterie.memory.store.memory_index import is_memory
from coterie.memory.store.path_rules import DEEPEST, SUFFIX


class ScannedFile(NamedTuple):
    """A memory file with its size, time and inode, by which a changed file is detected without reading it."""

    path: str
    """Path of the file relative to the store's directory, with `/` as separator."""
    modified: int
    """Modification time of the file, in nanoseconds since the epoch."""
    size: int
    inode: int


def list_memories(directory: Path) -> list[ScannedFile]:
    """List the memory files `*.md` below *directory*, in any order; omit the index, daily logs and dot names. Blocks.

    Links are not followed. Unreadable directories and unprintable names are skipped.
    """
    return list(_walk(f"{directory}/", "", DEEPEST))


def _walk(directory: str, below: str, depth: int) -> Iterator[ScannedFile]:
    try:
        with os.scandir(directory + below) as entries:
            found = [entry for entry in entries if entry.name[0] != "." and entry.name.isprintable()]
    except OSError:
        return
    for entry in found:
        path = below + entry.name
        if path.endswith(SUFFIX):
            with suppress(OSError):
                if is_memory(path) and stat.S_ISREG((status := entry.stat(follow_symlinks=False)).st_mode):
                    yield ScannedFile(path, status.st_mtime_ns, status.st_size, status.st_ino)
        elif depth > 1 and is_memory(f"{path}/") and entry.is_dir(follow_symlinks=False):
            yield from _walk(directory, f"{path}/", depth - 1)


@contextmanager
def open_memories(directory: Path) -> Iterator[ConfinedDirectory | None]:
    """Open the memory directory *directory* to read its files; yield None if it is missing, a link or unreadable."""
    with ExitStack() as stack:
        memories = None
        with suppress(OSError, MemoryRefused):
            memories = stack.enter_context(open_confined(directory))
        yield memories


def read_head(memories: ConfinedDirectory, path: str, limit: int) -> bytes | None:
    """Return the first *limit* bytes of the file *path*, without a cut last character; None if it cannot be read."""
    try:
        # Most files are in the top directory; reading them directly saves two thirds of the time.
        content = memories.read(path, limit) if "/" in path else _read_at_top(memories.descriptor, path, limit)
    except (OSError, MemoryRefused):
        return None
    if content is None or len(content) < limit:
        return content
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(content[-4:])  # the longest character of UTF-8
    cut, _ = decoder.getstate()
    return content[: len(content) - len(cut)]


def _read_at_top(directory: int, name: str, limit: int) -> bytes | None:
    # O_NONBLOCK: opening a pipe in the place of a file must not block.
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        return os.read(descriptor, limit) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    finally:
        os.close(descriptor)


_SIMPLE = r"[^\x00-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff:#]*"
_VALUE = rf"[^\W_]{_SIMPLE}(?:(?::(?=\S)|(?<=\S)#){_SIMPLE})*"
"""Regular expression of a plain YAML value on one line, in which no character has a special meaning in YAML."""
_FIELD = rf"[a-z]+: {_VALUE}\n"
_PLAIN = re.compile(rf"---\n((?:{_FIELD}|metadata:\n(?:  {_FIELD})+)+)---\n")
_FIELDS = re.compile(r"^( *)([a-z]+): (.*)$", re.MULTILINE)


def parse_entry_fast(content: bytes, path: str) -> MemoryEntry:
    """Parse a memory as `parse_entry` does, but faster for simple front matter; warnings (`notes`) may be missing."""
    text = content.decode(errors="replace")
    block = _PLAIN.match(text)
    found = _FIELDS.findall(block[1]) if block and "\0" not in text and "\r" not in text else []
    fields = {f"{indent}{key}": " ".join(value.split()) for indent, key, value in found}
    name, description = fields.get("name", ""), fields.get("description", "")
    is_short = max(len(name), len(description)) <= LONGEST_DESCRIPTION
    if block is None or not (name and description and is_short and len(fields) == len(found)):
        return parse_entry(content, path)
    named = (fields.get("type") or fields.get("  type", "")).lower()
    type_ = next((type_ for type_ in TYPES if type_ == named), None)
    return MemoryEntry(name=name, description=description, type=type_, body=text[block.end() :].strip("\n"))


LINES = 30
"""Number of lines at the start of a file that are read for its description."""
HEAD = 16 * 1024
"""Maximum number of bytes at the start of a file that are read for its description."""


@attrs.frozen(kw_only=True)
class ScannedMemory:
    """Path, type, description and modification time of a memory, by which a model can select it."""

    path: str
    """Path of the memory file, relative to the directory of its store."""
    description: str
    type: MemoryType | None
    modified: float
    """Modification time of the file, in seconds since the epoch."""

    @property
    def line(self) -> str:
        """The memory as one line of the list from which a model selects: `- [type] path (time): description`."""
        kind = f"[{self.type}] " if self.type else ""
        at = dt.datetime.fromtimestamp(self.modified, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        about = f": {self.description}" if self.description else ""
        return f"- {kind}{self.path} ({at}){about}"


def scan_newest(directory: Path, most: int = 200) -> list[ScannedMemory]:
    """Return the *most* newest memories below *directory* with their descriptions, newest first. Blocks."""
    files = heapq.nsmallest(most, list_memories(directory), key=lambda file: (-file.modified, file.path))
    return scan_files(directory, files)


def scan_files(directory: Path, files: Iterable[ScannedFile]) -> list[ScannedMemory]:
    """Read type and description of *files*, memory files of *directory*, in order; skip unreadable ones. Blocks."""
    scanned: list[ScannedMemory] = []
    with open_memories(directory) as memories:
        for file in files if memories else ():
            if memories is None or (content := read_head(memories, file.path, HEAD)) is None:
                continue
            topic = parse_entry_fast(b"\n".join(content.split(b"\n", LINES)[:LINES]) + b"\n", file.path)
            about, at = topic.description, file.modified / 1e9
            scanned.append(ScannedMemory(path=file.path, description=about, type=topic.type, modified=at))
    return scanned
