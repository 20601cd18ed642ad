"""Ledger of a session: a file with one line for each model call that was or may have been billed."""

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
    """One model call that was billed or may have been billed."""

    at: float
    """Time when the call ended, in seconds since 1970; when it started, if the root (supervisor) was killed."""
    agent: str
    incarnation: int
    parent: str | None = None
    """Name of the agent's parent; None for the lead (the first agent)."""
    purpose: str
    model: str
    usage: Usage
    cost_usd: Decimal
    """Cost in dollars, without rounding; an upper bound if `is_estimated`."""
    prefix: str = ""
    """Hash of the conversation that was sent, in hexadecimal; calls with the same hash can share cache entries."""
    expected_read: int | None = None
    """Number of tokens that were expected in the prompt cache; None if unknown. `usage.read` is the actual number."""
    is_estimated: bool = False
    """True if the reply was interrupted or is unknown, so that tokens and dollars are an upper bound."""

    @property
    def cached(self) -> int:
        """Number of prompt tokens that were in the cache after the call: read from it or written to it."""
        return self.usage.prompt - self.usage.input

    @property
    def missed(self) -> int:
        """Number of tokens that were expected in the prompt cache but were not read from it."""
        return max(0, (self.expected_read or 0) - self.usage.read)

    def to_bytes(self) -> bytes:
        """Encode the entry as a record with checksum and newlines, to be appended to the file."""
        facts = {"v": VERSION, **attrs.asdict(self), "cost_usd": format(self.cost_usd, "f")}
        return frame_record(msgspec.json.encode(facts))

    @classmethod
    def from_bytes(cls, data: bytes) -> "LedgerEntry":
        """Decode the result of `to_bytes` without its newlines. Raises only `ValueError`, for any *data*."""
        check_record(data)
        try:
            facts = _facts.decode(data)
            if facts.get("v") != VERSION:
                raise ValueError(f"the entry has version {facts.get('v')}, but this program reads version {VERSION}")
            line = msgspec.convert(facts, cls)
        except RecursionError as exc:
            raise ValueError("the JSON of the entry is nested too deeply") from exc
        if not (line.cost_usd.is_finite() and line.cost_usd >= 0 and min(attrs.astuple(line.usage)) >= 0):
            raise ValueError("tokens and dollars of an entry must be finite and not negative")
        return line


_facts = msgspec.json.Decoder(dict[str, Any])

LEDGER = "ledger.jsonl"
"""Name of the ledger file in the session's directory."""


@attrs.define(eq=False)
class Ledger:
    """Ledger file that is open for appending. Several processes may append, because each entry is one write."""

    _appender: Appender

    @classmethod
    def open(cls, path: Path) -> "Ledger":
        """Open the ledger file *path*; create it if it is missing. Raises `OSError`, also without its directory."""
        return cls(Appender.open(path))

    def append(self, line: LedgerEntry) -> None:
        """Append one entry. Raises `OSError`. A partly written entry does not damage other entries."""
        self._appender.append(line.to_bytes())

    def close(self) -> None:
        """Close the ledger file; `append` must not be called afterwards."""
        self._appender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@attrs.frozen(kw_only=True)
class DamagedEntry:
    """Ledger line that cannot be read, and why."""

    line: int
    """Line number in the file, counted from 1; blank lines count."""
    reason: str


@attrs.frozen(kw_only=True)
class LedgerContents:
    """All readable entries of a ledger in the order of the file, and its damaged lines."""

    lines: tuple[LedgerEntry, ...] = ()
    damaged: tuple[DamagedEntry, ...] = ()


def read_ledger(path: Path) -> LedgerContents:
    """Read the ledger file *path*. A damaged line is listed in the result and does not hide other lines.

    Blocks on the disk. Raises `OSError`, also if the file does not exist.
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
