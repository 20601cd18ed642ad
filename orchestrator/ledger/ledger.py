"""The ledger on disk: a log that every process of a session appends to, and anybody reads."""

from pathlib import Path
from typing import Self

import attrs

from coterie.files import Appender
from coterie.orchestrator.ledger.line import LedgerLine

LEDGER = "ledger.jsonl"
"""In the directory of a session."""


@attrs.define(eq=False)
class Ledger:
    """A ledger open for appending. Several processes may have the same one open: each line is one write."""

    _appender: Appender

    @classmethod
    def open(cls, path: Path) -> "Ledger":
        """Open or create *path*; its directory must exist. Raises `OSError`."""
        return cls(Appender.open(path))

    def append(self, line: LedgerLine) -> None:
        """Put *line* at the end. Raises `OSError`; a part of it that is then on disk harms no other line."""
        self._appender.append(line.to_bytes())

    def close(self) -> None:
        """Close the file; appending afterwards is an error."""
        self._appender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@attrs.frozen(kw_only=True)
class Damage:
    """A line that is not as it was written."""

    line: int
    """The first is 1; blank ones count."""
    reason: str


@attrs.frozen(kw_only=True)
class LedgerReading:
    """What a ledger says: every line that can be read, in their order, and which ones cannot."""

    lines: tuple[LedgerLine, ...] = ()
    damaged: tuple[Damage, ...] = ()


def read_ledger(path: Path) -> LedgerReading:
    """Read all of *path*. A damaged line, or a torn one at the end, is told apart and hides no other.

    Blocks on the disk; raises `OSError`, for one that does not exist too.
    """
    lines: list[LedgerLine] = []
    damaged: list[Damage] = []
    with path.open("rb") as file:
        for number, content in enumerate(file, 1):
            if content == b"\n":
                continue
            try:
                lines.append(LedgerLine.from_bytes(content.removesuffix(b"\n")))
            except ValueError as exc:
                damaged.append(Damage(line=number, reason=str(exc)))
    return LedgerReading(lines=tuple(lines), damaged=tuple(damaged))
