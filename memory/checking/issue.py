"""Issues that a check of a memory store finds, and counts of the memories that are misleading due to an issue."""

from collections.abc import Iterable, Sequence
from typing import Literal

import attrs

from coterie.memory.store.memory_entry import MemoryEntry

IssueKind = Literal[
    "orphan",
    "dead_link",
    "long_line",
    "long_index",
    "duplicate",
    "contradiction",
    "dead_claim",
    "front_matter",
    "not_text",
    "too_large",
    "unreadable",
    "relative_date",
    "secret",
]
POLLUTING: dict[IssueKind, str] = {"contradiction": "contradicted", "duplicate": "duplicate", "dead_claim": "dead"}
"""Kinds of issues that make a memory harmful (misleading or redundant), with the `IssueRate` field that counts each."""


@attrs.frozen(kw_only=True)
class StoreIssue:
    """One problem that a check found in a memory store, such as a dead link, with its file and line."""

    path: str
    """Path of the file that has the problem, relative to the directory of the store."""
    line: int | None = None
    """Line number of the problem in the file, from 1; None if the problem concerns the whole file."""
    kind: IssueKind
    reason: str
    """Description of the problem in one line that continues the file name, such as "has no name"."""

    @property
    def source(self) -> str:
        """Place of the problem for a report: `path:line`, or only `path` if the problem concerns the whole file."""
        return self.path if self.line is None else f"{self.path}:{self.line}"


@attrs.frozen(kw_only=True)
class CheckedMemory:
    """A memory file to be checked: its path in the store, its bytes, and the parsed fields and body."""

    path: str
    content: bytes
    entry: MemoryEntry

    @property
    def text(self) -> str:
        """Text of the whole file, with LF as line end; invalid UTF-8 is replaced by replacement characters."""
        return self.content.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")

    @property
    def body_line(self) -> int:
        """Number, from 1, of the line in the file at which the body begins (the text after the front matter)."""
        text = self.text
        return text.count("\n", 0, max(text.find(self.entry.body), 0)) + 1


@attrs.frozen(kw_only=True)
class IssueRate:
    """Numbers of misleading memories in a store: contradicted, duplicate, or dead (naming a missing file or symbol)."""

    memories: int
    """Number of all memories in the store."""
    contradicted: int
    duplicate: int
    dead: int
    """Number of memories that mention a file or symbol that does not exist in the project."""
    polluted: int
    """Number of memories that are contradicted, duplicate or dead; a memory with several issues counts once."""
    claims: int
    """Number of references in memories to files and symbols of the project that were checked."""
    dead_claims: int

    @property
    def share(self) -> float:
        """`polluted` (misleading memories) as a fraction of all memories, from 0 to 1; 0 without memories."""
        return self.polluted / self.memories if self.memories else 0.0


def measure_issue_rate(paths: Sequence[str], findings: Iterable[StoreIssue], claims: int) -> IssueRate:
    """Count the misleading memories among *paths*, by the issues *findings*. *claims*: number of checked references."""
    found = list(findings)
    spoilt = {kind: {finding.path for finding in found if finding.kind == kind} for kind in POLLUTING}
    counts = {POLLUTING[kind]: len(memories) for kind, memories in spoilt.items()}
    return IssueRate(
        memories=len(paths),
        polluted=len(set().union(*spoilt.values())),
        claims=claims,
        dead_claims=sum(finding.kind == "dead_claim" for finding in found),
        **counts,
    )
