"""The index of a memory store, `MEMORY.md`: a Markdown list with one line for each memory."""

import re
from collections.abc import Iterable, Iterator, Sequence

import attrs

from coterie.memory.store.change import MemoryChange
from coterie.memory.store.memory_entry import MemoryEntry, parse_entry
from coterie.memory.store.path_rules import INDEX, LOGS

LONGEST_LINE = 150
"""Maximum length in characters of an index line that the store writes, if its link is not longer."""
_SHORTEST = 20
"""Number of characters that a title may always have in an index line; with less room a description is omitted."""
MOST_LINES = 200
MOST_BYTES = 25_000

_LINE = re.compile(r"\s*[-*+]\s+\[.*?\]\((?:<(?P<quoted>[^<>]*)>|(?P<path>[^()\s]*))\)")


@attrs.frozen(kw_only=True)
class IndexLine:
    """A line of the index that links to a memory, such as `- [Title](file.md) — description`."""

    line: int
    """Line number in the index file, from 1."""
    path: str


@attrs.frozen(kw_only=True)
class LoadedIndex:
    """The index text that an agent gets in its context, cut if the index is too long."""

    text: str
    warning: str | None
    """Text for the model that says how much of the index is missing; None if the index is complete."""


def index_lines(text: str) -> list[IndexLine]:
    """Return the lines of the index *text* that link to a file, each with its line number and the path."""
    return list(_entries(text.split("\n")))


def load_index(text: str) -> LoadedIndex:
    """Return the index *text* for the context of an agent, cut to `MOST_LINES` lines and `MOST_BYTES` bytes."""
    whole = text.rstrip("\n").split("\n")
    cut = "\n".join(whole[:MOST_LINES]) if len(whole) > MOST_LINES else text
    if len(cut.encode(errors="replace")) > MOST_BYTES:
        begin = cut.encode(errors="replace")[:MOST_BYTES]
        cut = begin[: max(begin.rfind(b"\n"), 0) or MOST_BYTES].decode(errors="ignore")
    if cut == text:
        return LoadedIndex(text=text, warning=None)
    left = len(cut.split("\n"))
    return LoadedIndex(
        text=cut,
        warning=f"{INDEX} has {len(whole)} lines and {len(text.encode(errors='replace'))} bytes; only the first {left} "
        f"lines are shown here. Keep it below {MOST_LINES} lines and {MOST_BYTES} bytes: one short line for each "
        "memory, and what there is to say in the memory itself.",
    )


def index_line(topic: MemoryEntry, path: str) -> str:
    """Return a new index line for the memory *topic* in the file *path*: link and description, cut if too long."""
    target = f"<{path}>" if re.search(r"[()\s]", path) else path
    title = topic.name.replace("[", "(").replace("]", ")")
    link = f"- [{_cut(title, max(LONGEST_LINE - len(target) - 6, _SHORTEST))}]({target})"
    # The link itself is never cut, because the memory is found by it.
    if not topic.description or len(link) + _SHORTEST > LONGEST_LINE:
        return link
    return _cut(f"{link} \N{EM DASH} {topic.description}", LONGEST_LINE)


def lines_for(text: str, path: str) -> list[str]:
    """Return the lines of the index *text* that link to the memory *path*."""
    return [line for line in _naming(text, path) if any(entry.path == path for entry in _entries([line]))]


def is_memory(path: str) -> bool:
    """True if the file *path* is a memory, so that the index has a line for it; False for the index and daily logs."""
    return path != INDEX and not path.startswith(f"{LOGS}/")


def update_index(text: str, changes: Sequence[MemoryChange]) -> str:
    """Return the index *text* after *changes*: a written memory without a line gets one, a deleted one loses its lines.

    Repeating the call changes nothing more, also if a crash cut the last line of *text*.
    """
    for change in changes:
        if not is_memory(change.path):
            continue
        if change.after is None:
            gone = set(lines_for(text, change.path))
            text = "\n".join(line for line in text.split("\n") if line not in gone) if gone else text
        elif not text.endswith("\n") or not _links(text, change.path):
            line = change.index_line or index_line(parse_entry(change.after, change.path), change.path)
            text = _with(text, line, change.path)
    return text


def revert_index(current: str, before: str, after: str) -> str:
    """Return the index *current* without the edit that turned *before* into *after*, but with later edits.

    A restored line is inserted after the line that preceded it in *before*.
    """
    if current == after:
        return before
    old, new = before.split("\n"), set(after.split("\n"))
    came = new.difference(old)
    lines = [line for line in current.split("\n") if line not in came]
    known = {*new, *lines}
    linked = {entry.path for entry in _entries(lines)}
    previous: str | None = None
    for line in filter(str.strip, old):
        if line not in known and not any(entry.path in linked for entry in _entries([line])):
            lines.insert(lines.index(previous) + 1 if previous in lines else 0, line)
        previous = line
    return "\n".join(lines)


def _entries(lines: Iterable[str]) -> Iterator[IndexLine]:
    for number, line in enumerate(lines, 1):
        if "](" not in line or (found := _LINE.match(line)) is None:
            continue
        path = (found["quoted"] if found["path"] is None else found["path"]).removeprefix("./")
        yield IndexLine(line=number, path=path)


def _links(text: str, path: str) -> bool:
    # Most memories are new: a substring test is faster than parsing every line.
    return path in text and bool(lines_for(text, path))


def _naming(text: str, path: str) -> Iterator[str]:
    """Yield the lines of *text* that contain the string *path*."""
    at = text.find(path)
    while at >= 0:
        start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        end = len(text) if end < 0 else end
        yield text[start:end]
        at = text.find(path, end)


def _with(text: str, line: str, path: str) -> str:
    start = text.rfind("\n") + 1
    if _links(text[:start], path):
        return text
    if line.startswith(text[start:]):
        return f"{text[:start]}{line}\n"
    return text if _links(text[start:], path) else f"{text}\n{line}\n"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1].rstrip()}\N{HORIZONTAL ELLIPSIS}"


def decode_index(index: bytes | None) -> str:
    """Decode the bytes of an index file, empty if None; `encode_index` restores bytes that are not valid UTF-8."""
    return (index or b"").decode(errors="surrogateescape")


def encode_index(text: str) -> bytes:
    """Encode an index text from `decode_index` to bytes; bytes that are not valid UTF-8 are restored."""
    return text.encode(errors="surrogateescape")
