"""What a check finds, and how much of a store it spoils."""

from collections.abc import Iterable, Sequence
from typing import Literal

import attrs

from coterie.memory.store.topic import Topic

Kind = Literal[
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
POLLUTING: dict[Kind, str] = {"contradiction": "contradicted", "duplicate": "duplicate", "dead_claim": "dead"}
"""What makes a memory worse than none, because it misleads or takes the place of another -> what to call it."""


@attrs.frozen(kw_only=True)
class Finding:
    """One thing that is wrong, and where."""

    path: str
    """Of the file, relative to the store."""
    line: int | None = None
    """From 1; None when it is about the whole file."""
    kind: Kind
    reason: str
    """In one line; it quotes what others wrote."""

    @property
    def source(self) -> str:
        """The file, and the line if it is about one."""
        return self.path if self.line is None else f"{self.path}:{self.line}"


@attrs.frozen(kw_only=True)
class Memory:
    """A memory as it is checked."""

    path: str
    content: bytes
    topic: Topic

    @property
    def text(self) -> str:
        """The whole file, with plain line ends; what is not UTF-8 is replaced."""
        return self.content.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")

    @property
    def body_line(self) -> int:
        """The line of the file in which the body begins."""
        text = self.text
        return text.count("\n", 0, max(text.find(self.topic.body), 0)) + 1


@attrs.frozen(kw_only=True)
class Pollution:
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


def pollution_of(paths: Sequence[str], findings: Iterable[Finding], claims: int) -> Pollution:
    """Count the memories *paths* that the *findings* spoil."""
    found = list(findings)
    spoilt = {kind: {finding.path for finding in found if finding.kind == kind} for kind in POLLUTING}
    counts = {POLLUTING[kind]: len(memories) for kind, memories in spoilt.items()}
    return Pollution(
        memories=len(paths),
        polluted=len(set().union(*spoilt.values())),
        claims=claims,
        dead_claims=sum(finding.kind == "dead_claim" for finding in found),
        **counts,
    )
