"""Issues that a check finds, and the share of memories that they affect."""

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
"""Issues that make a memory harmful, because it misleads or displaces another, and their names in reports."""


@attrs.frozen(kw_only=True)
class StoreIssue:
    """One problem of a memory store, with its file and line."""

    path: str
    """Path of the file, relative to the store."""
    line: int | None = None
    """Line number, from 1; None if the issue concerns the whole file."""
    kind: IssueKind
    reason: str
    """The problem in one line; may quote text of the memories."""

    @property
    def source(self) -> str:
        """The file, with the line if there is one."""
        return self.path if self.line is None else f"{self.path}:{self.line}"


@attrs.frozen(kw_only=True)
class CheckedMemory:
    """A memory file that is checked, with its parsed content."""

    path: str
    content: bytes
    entry: MemoryEntry

    @property
    def text(self) -> str:
        """The whole file with normalised line ends; invalid UTF-8 is replaced."""
        return self.content.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")

    @property
    def body_line(self) -> int:
        """Line of the file in which the body begins."""
        text = self.text
        return text.count("\n", 0, max(text.find(self.entry.body), 0)) + 1


@attrs.frozen(kw_only=True)
class IssueRate:
    """Number of memories that mislead, by type of issue."""

    memories: int
    """Number of all memories in the store."""
    contradicted: int
    duplicate: int
    dead: int
    """Number of memories that mention a missing file or symbol."""
    polluted: int
    """Number of memories with at least one of these issues."""
    claims: int
    """Number of mentioned files and symbols that were checked."""
    dead_claims: int

    @property
    def share(self) -> float:
        """Share of misleading memories, from 0 to 1."""
        return self.polluted / self.memories if self.memories else 0.0


def measure_issue_rate(paths: Sequence[str], findings: Iterable[StoreIssue], claims: int) -> IssueRate:
    """Count the memories among *paths* that have one of the *findings*, by type of issue."""
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
