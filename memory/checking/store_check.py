"""Check of all memories of a store (a directory of memory files), and repair of its index `MEMORY.md`."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from coterie.memory.checking.file_checks import check_file, check_index, is_dangling
from coterie.memory.checking.issue import CheckedMemory, IssueRate, StoreIssue, measure_issue_rate
from coterie.memory.checking.memory_comparison import find_contradictions, find_duplicates
from coterie.memory.checking.project_references import find_missing, find_references
from coterie.memory.errors import BaseChanged, MemoryRefused
from coterie.memory.store.change import Author, MemoryChange
from coterie.memory.store.memory_entry import MemoryEntry, parse_entry
from coterie.memory.store.memory_index import LONGEST_LINE, index_line, index_lines
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.transaction import LARGEST


@attrs.frozen(kw_only=True)
class CheckReport:
    """Result of checking a memory store: issues, share of misleading memories, and checks that were not possible."""

    findings: tuple[StoreIssue, ...]
    """All issues found, sorted by file and line; those of the index file come last."""
    pollution: IssueRate
    notes: tuple[str, ...]
    """Lines for the user about checks that were not possible, each with the reason; usually empty."""


def check_store(store: MemoryStore, project: Path | None) -> CheckReport:
    """Check all memories of *store* and its index; with *project*, also the files and symbols that memories mention.

    Changes nothing. Blocks. Raises `OSError` if the directory of the store cannot be listed.
    """
    paths = store.paths()
    findings: list[StoreIssue] = []
    memories = list(_read_all(store, paths, findings))
    for memory in memories:
        findings += check_file(memory)
    findings += find_duplicates(memories)
    findings += find_contradictions(memories)
    claims = [claim for memory in memories for claim in find_references(memory)] if project is not None else []
    absent = find_missing(claims, project, [store.directory]) if project is not None else None
    for claim in absent.claims if absent is not None else ():
        reason = f"mentions `{claim.shown}`, which does not exist in the project; correct or delete the statement"
        findings.append(StoreIssue(path=claim.path, line=claim.line, kind="dead_claim", reason=reason))
    findings += check_index(store.index(), paths)
    return CheckReport(
        findings=tuple(sorted(findings, key=lambda found: (found.path == INDEX, found.path, found.line or 0))),
        pollution=measure_issue_rate(paths, findings, absent.judged if absent is not None else 0),
        notes=() if absent is None or absent.note is None else (absent.note,),
    )


def _read_all(store: MemoryStore, paths: list[str], findings: list[StoreIssue]) -> Iterator[CheckedMemory]:
    """Read and parse the memories *paths*; yield those that are readable, add an issue to *findings* for others."""
    for path in paths:
        try:
            content = store.read(path, limit=LARGEST + 1)
        except OSError as exc:
            reason = f"cannot be read: {exc.strerror}; check its permissions"
            findings.append(StoreIssue(path=path, kind="unreadable", reason=reason))
        except MemoryRefused as exc:
            findings.append(StoreIssue(path=path, kind="unreadable", reason=exc.reason))
        else:
            # None if the file was deleted after it was listed.
            if content is not None:
                yield CheckedMemory(path=path, content=content, entry=parse_entry(content, path))


ATTEMPTS = 5
"""Number of attempts to repair the index if other processes change it at the same time."""
HEAD = 65_536
"""Number of bytes at the start of a memory file that are read to get its name and description."""
AUTHOR = Author(by="user", why="memory check --fix")


def repair_index(store: MemoryStore) -> MemoryChange | None:
    """Repair the index of *store*: add missing memories, remove dead links, shorten long lines. Edits no memory.

    Returns the one change that was recorded; None if the index was correct. Blocks. Raises as `MemoryStore.write`.
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
    """Return the index *text* with dead and repeated links removed, long lines cut, and missing memories added.

    *memories* maps the paths of all memories to their parsed content; None for a memory to which *text* links already.
    Lines without a link are kept, however long, because their text may exist nowhere else.
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
    """Return the index line *line*, cut between words if it is too long; unchanged if the cut would break its link."""
    if len(line) <= LONGEST_LINE:
        return line
    cut = line[: LONGEST_LINE - 3]
    cut = f"{cut[: cut.rfind(' ')]}..."
    is_whole = [entry.path for entry in index_lines(cut)] == [entry.path for entry in index_lines(line)]
    return cut if is_whole else line
