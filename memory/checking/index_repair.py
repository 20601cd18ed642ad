"""Repair of the index of a store."""

from collections.abc import Mapping

from coterie.memory.checking.file_checks import is_dangling
from coterie.memory.errors import BaseChanged, MemoryRefused
from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.memory_entry import MemoryEntry, parse_entry
from coterie.memory.store.memory_index import LONGEST_LINE, index_line, index_lines
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.path_rules import INDEX

ATTEMPTS = 5
"""Number of attempts if other processes change the index concurrently."""
HEAD = 65_536
"""Bytes of a memory that are read for its name and description."""
AUTHOR = Author(by="user", why="memory check --fix")


def repair_index(store: MemoryStore) -> MemoryChange | None:
    """Repair the index of *store*: add missing lines, remove dead lines, shorten long lines; None if it is correct.

    Makes one change in the change log, and never edits a memory. Blocks; raises as `MemoryStore.write` does.
    """
    for attempt in range(ATTEMPTS):
        before = store.read(INDEX)
        text = (before or b"").decode("utf-8", "replace")
        linked = {entry.path for entry in index_lines(text)}
        memories = {path: None if path in linked else _read_entry(store, path) for path in store.paths()}
        repaired = repair_index_text(text, memories)
        if repaired == text:
            return None
        try:
            return store.write(INDEX, repaired.encode(), AUTHOR, base=before)
        except BaseChanged:
            if attempt == ATTEMPTS - 1:
                raise
    return None


def repair_index_text(text: str, memories: Mapping[str, MemoryEntry | None]) -> str:
    """Repair the index *text* of a store with *memories*; a linked memory may be None, because it is not needed.

    Lines that are not links to a memory are kept, however long, because they may hold unique text.
    """
    entries = {entry.line: entry.path for entry in index_lines(text)}
    kept: list[str] = []
    linked: set[str] = set()
    for number, line in enumerate(text.split("\n"), 1):
        path = entries.get(number)
        if path is not None and (is_dangling(path, memories) or path in linked):
            continue
        linked.update(() if path is None else (path,))
        kept.append(line if path is None else _shorten(line))
    whole = "\n".join(kept).rstrip("\n")
    added = [index_line(topic, path) for path, topic in memories.items() if path not in linked and topic is not None]
    if not added:
        return "\n".join(kept)
    return "\n".join([*([whole] if whole else []), *added, ""])


def _read_entry(store: MemoryStore, path: str) -> MemoryEntry:
    try:
        content = store.read(path, limit=HEAD)
    except (OSError, MemoryRefused):
        content = None
    return parse_entry(content or b"", path)


def _shorten(line: str) -> str:
    """Cut a link line between words if it is too long; keep it whole if the cut would break the link."""
    if len(line) <= LONGEST_LINE:
        return line
    cut = line[: LONGEST_LINE - 3]
    cut = f"{cut[: cut.rfind(' ')]}..."
    is_whole = [entry.path for entry in index_lines(cut)] == [entry.path for entry in index_lines(line)]
    return cut if is_whole else line
