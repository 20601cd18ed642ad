"""One line of the ledger: who asked the model for what, and what it cost."""

from decimal import Decimal
from typing import Any

import attrs
import msgspec

from coterie.agents.gate import Intent
from coterie.agents.usage import Usage
from coterie.files import check_record, frame_record

VERSION = 1


@attrs.frozen(kw_only=True)
class LedgerLine:
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
    def of(cls, intent: Intent, usage: Usage, *, at: float, **facts: Any) -> "LedgerLine":
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
    def from_bytes(cls, data: bytes) -> "LedgerLine":
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
