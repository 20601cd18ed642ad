"""All checks of a store of memories."""

from collections.abc import Iterator
from pathlib import Path

import attrs

from coterie.memory.checking.file_checks import check_file, check_index
from coterie.memory.checking.issue import CheckedMemory, IssueRate, StoreIssue, measure_issue_rate
from coterie.memory.checking.memory_comparison import find_contradictions, find_duplicates
from coterie.memory.checking.project_references import find_missing, find_references
from coterie.memory.errors import MemoryRefused
from coterie.memory.store.memory_entry import parse_entry
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.transaction import LARGEST


@attrs.frozen(kw_only=True)
class CheckReport:
    """Result of checking a memory store."""

    findings: tuple[StoreIssue, ...]
    """Issues sorted by file, those of the index last."""
    pollution: IssueRate
    notes: tuple[str, ...]
    """Checks that were not possible, each with the reason."""


def check_store(store: MemoryStore, project: Path | None) -> CheckReport:
    """Check all memories of *store*, and their references to files and symbols of *project*, if given.

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
        reason = f"names `{claim.shown}`, which is nowhere in the project"
        findings.append(StoreIssue(path=claim.path, line=claim.line, kind="dead_claim", reason=reason))
    findings += check_index(store.index(), paths)
    return CheckReport(
        findings=tuple(sorted(findings, key=lambda found: (found.path == INDEX, found.path, found.line or 0))),
        pollution=measure_issue_rate(paths, findings, absent.judged if absent is not None else 0),
        notes=() if absent is None or absent.note is None else (absent.note,),
    )


def _read_all(store: MemoryStore, paths: list[str], findings: list[StoreIssue]) -> Iterator[CheckedMemory]:
    """Yield the readable memories; an unreadable memory adds an issue."""
    for path in paths:
        try:
            content = store.read(path, limit=LARGEST + 1)
        except OSError as exc:
            findings.append(StoreIssue(path=path, kind="unreadable", reason=f"cannot be read: {exc.strerror}"))
        except MemoryRefused as exc:
            findings.append(StoreIssue(path=path, kind="unreadable", reason=exc.reason))
        else:
            # None if the file was deleted after it was listed.
            if content is not None:
                yield CheckedMemory(path=path, content=content, entry=parse_entry(content, path))
