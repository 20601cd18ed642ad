"""Ledger of a session: one entry for each billed model call."""

from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import attrs
import msgspec

from coterie.agents.loop.model.usage import Usage
from coterie.files import Appender, check_record, frame_record

VERSION = 1


@attrs.frozen(kw_only=True)
class LedgerEntry:
    """One request that was billed or may have been billed."""

    at: float
    """End of the request, in seconds since 1970."""
    agent: str
    incarnation: int
    parent: str | None = None
    """Parent of the agent; None for the lead."""
    purpose: str
    model: str
    usage: Usage
    cost_usd: Decimal
    """Dollars, exact."""
    prefix: str = ""
    """Running hash of the request's prefix, in hexadecimal."""
    expected_read: int | None = None
    """Tokens that were expected to be in the cache; None if unknown. `usage.read` is the actual number."""
    is_estimated: bool = False
    """True if the reply was interrupted; tokens and dollars are then an upper bound."""

    @property
    def cached(self) -> int:
        """Prompt tokens that were in the cache when the reply started: read or written."""
        return self.usage.prompt - self.usage.input

    @property
    def missed(self) -> int:
        """Tokens that were expected to be read from the cache, but were not."""
        return max(0, (self.expected_read or 0) - self.usage.read)

    def to_bytes(self) -> bytes:
        """Encode the entry as a record with checksum and newlines, ready to append."""
        facts = {"v": VERSION, **attrs.asdict(self), "cost_usd": format(self.cost_usd, "f")}
        return frame_record(msgspec.json.encode(facts))

    @classmethod
    def from_bytes(cls, data: bytes) -> "LedgerEntry":
        """Decode the result of `to_bytes`, without its newlines. Raises only `ValueError`, for any *data*."""
        check_record(data)
        try:
            facts = _facts.decode(data)
            if facts.get("v") != VERSION:
                raise ValueError(f"version {facts.get('v')}; this program reads {VERSION}")
            line = msgspec.convert(facts, cls)
        except RecursionError as exc:
            raise ValueError("nested too deeply") from exc
        if not (line.cost_usd.is_finite() and line.cost_usd >= 0 and min(attrs.astuple(line.usage)) >= 0):
            raise ValueError("tokens and dollars must be finite and not negative")
        return line


_facts = msgspec.json.Decoder(dict[str, Any])

LEDGER = "ledger.jsonl"
"""File name of the ledger in the session's directory."""


@attrs.define(eq=False)
class Ledger:
    """Ledger file open for appending. Several processes may append, because each entry is one write."""

    _appender: Appender

    @classmethod
    def open(cls, path: Path) -> "Ledger":
        """Open or create *path*; its directory must exist. Raises `OSError`."""
        return cls(Appender.open(path))

    def append(self, line: LedgerEntry) -> None:
        """Append one entry. Raises `OSError`; a partly written entry does not damage other entries."""
        self._appender.append(line.to_bytes())

    def close(self) -> None:
        """Close the file."""
        self._appender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@attrs.frozen(kw_only=True)
class DamagedEntry:
    """Ledger line that cannot be read."""

    line: int
    """Line number from 1, blank lines included."""
    reason: str


@attrs.frozen(kw_only=True)
class LedgerContents:
    """All readable entries of a ledger in order, and its damaged lines."""

    lines: tuple[LedgerEntry, ...] = ()
    damaged: tuple[DamagedEntry, ...] = ()


def read_ledger(path: Path) -> LedgerContents:
    """Read the ledger *path*. A damaged or torn line is reported and does not hide other lines.

    Blocks on the disk; raises `OSError`, also if the file does not exist.
    """
    lines: list[LedgerEntry] = []
    damaged: list[DamagedEntry] = []
    with path.open("rb") as file:
        for number, content in enumerate(file, 1):
            if content == b"\n":
                continue
            try:
                lines.append(LedgerEntry.from_bytes(content.removesuffix(b"\n")))
            except ValueError as exc:
                damaged.append(DamagedEntry(line=number, reason=str(exc)))
    return LedgerContents(lines=tuple(lines), damaged=tuple(damaged))
