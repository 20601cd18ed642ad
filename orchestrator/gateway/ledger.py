"""Ledger of a session: one entry for each billed model call."""

from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import attrs
import msgspec

from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.usage import Usage
from coterie.files import Appender, check_record, frame_record

VERSION = 1


@attrs.frozen(kw_only=True)
class LedgerEntry:
    """One request that was billed, or may have been."""

    at: float
    """When the request ended, in seconds since 1970."""
    agent: str
    incarnation: int
    parent: str | None = None
    """Who spawned the agent; None for the one the user talks to."""
    purpose: str
    model: str
    usage: Usage
    cost_usd: Decimal
    """Dollars, exact."""
    prefix: str = ""
    """The running hash of the request's prefix, in hexadecimal."""
    expected_read: int | None = None
    """Tokens that should have been in the cache; None if nobody knew. `usage.read` is what was."""
    is_estimated: bool = False
    """The reply broke off: tokens and dollars are an upper bound."""

    @classmethod
    def of(cls, intent: CallIntent, usage: Usage, *, at: float, **facts: Any) -> "LedgerEntry":
        """The line of a call that was to be as *intent* says, and came to *usage*; *facts* say whose it was."""
        return cls(
            at=at,
            purpose=intent.purpose,
            model=intent.model.id,
            usage=usage,
            cost_usd=intent.model.cost(usage),
            prefix=intent.prefix.hex(),
            expected_read=intent.expected_read,
            **facts,
        )

    @property
    def cached(self) -> int:
        """Tokens of the prompt that stood in the cache once the reply had begun, read or written."""
        return self.usage.prompt - self.usage.input

    @property
    def missed(self) -> int:
        """Tokens that should have been read from the cache and were not."""
        return max(0, (self.expected_read or 0) - self.usage.read)

    def to_bytes(self) -> bytes:
        """The line with its newlines and its checksum: what to append."""
        facts = {"v": VERSION, **attrs.asdict(self), "cost_usd": format(self.cost_usd, "f")}
        return frame_record(msgspec.json.encode(facts))

    @classmethod
    def from_bytes(cls, data: bytes) -> "LedgerEntry":
        """What `to_bytes` wrote, without its newlines. Raises `ValueError` with the reason, whatever *data* is."""
        check_record(data)
        try:
            facts = _facts.decode(data)
            if facts.get("v") != VERSION:
                raise ValueError(f"version {facts.get('v')}; this program reads {VERSION}")
            line = msgspec.convert(facts, cls)
        except RecursionError as exc:
            raise ValueError("nested too deeply") from exc
        if not (line.cost_usd.is_finite() and line.cost_usd >= 0 and min(attrs.astuple(line.usage)) >= 0):
            raise ValueError("tokens and dollars are not numbers from 0 up")
        return line


_facts = msgspec.json.Decoder(dict[str, Any])

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

    def append(self, line: LedgerEntry) -> None:
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
class DamagedEntry:
    """A line that is not as it was written."""

    line: int
    """The first is 1; blank ones count."""
    reason: str


@attrs.frozen(kw_only=True)
class LedgerContents:
    """What a ledger says: every line that can be read, in their order, and which ones cannot."""

    lines: tuple[LedgerEntry, ...] = ()
    damaged: tuple[DamagedEntry, ...] = ()


def read_ledger(path: Path) -> LedgerContents:
    """Read all of *path*. A damaged line, or a torn one at the end, is told apart and hides no other.

    Blocks on the disk; raises `OSError`, for one that does not exist too.
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
