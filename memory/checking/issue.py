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
"""What makes a memory worse than none, because it misleads or takes the place of another -> what to call it."""


@attrs.frozen(kw_only=True)
class StoreIssue:
    """One thing that is wrong, and where."""

    path: str
    """Of the file, relative to the store."""
    line: int | None = None
    """From 1; None when it is about the whole file."""
    kind: IssueKind
    reason: str
    """In one line; it quotes what others wrote."""

    @property
    def source(self) -> str:
        """The file, and the line if it is about one."""
        return self.path if self.line is None else f"{self.path}:{self.line}"


@attrs.frozen(kw_only=True)
class CheckedMemory:
    """A memory as it is checked."""

    path: str
    content: bytes
    entry: MemoryEntry

    @property
    def text(self) -> str:
        """The whole file, with plain line ends; what is not UTF-8 is replaced."""
        return self.content.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")

    @property
    def body_line(self) -> int:
        """The line of the file in which the body begins."""
        text = self.text
        return text.count("\n", 0, max(text.find(self.entry.body), 0)) + 1


@attrs.frozen(kw_only=True)
class IssueRate:
    """How many memories of a store mislead."""

    memories: int
    """All that there are."""
    contradicted: int
    duplicate: int
    dead: int
    """Those that name what is not there any more."""
    polluted: int
    """Those of which one of these holds, each counted once."""
    claims: int
    """Files and symbols that all memories name and that were looked for."""
    dead_claims: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.polluted / self.memories if self.memories else 0.0


def measure_issue_rate(paths: Sequence[str], findings: Iterable[StoreIssue], claims: int) -> IssueRate:
    """Count the memories *paths* that the *findings* spoil."""
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
