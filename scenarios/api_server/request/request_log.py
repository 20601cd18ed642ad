"""Request log of the server: usage, cost, prefix hashes and cache result of each request."""

from collections import OrderedDict
from typing import Any, Literal

import attrs
import msgspec

from coterie.agents.loop.model.catalog import Model
from coterie.agents.loop.model.usage import Usage

KEPT = 10_000
"""Maximum number of log entries; the oldest are dropped first."""

CacheState = Literal["off", "hit", "partial", "miss"]
"""Use of the prompt cache: `hit` only read, `partial` read and wrote, `miss` only wrote, `off` did none of the two."""


@attrs.frozen(kw_only=True)
class RequestLogEntry:
    """One request and its answer. `error` is set if the request was refused or the client disconnected."""

    number: int
    """Number of the request on this server, from 1."""
    request_id: str
    time: float
    """Arrival of the request by the server's clock, in seconds since the epoch."""
    seconds: float
    """Real time in seconds from the arrival of the request to the creation of this entry."""
    path: str
    status: int
    error: str | None = None
    agent: str | None = None
    incarnation: int | None = None
    purpose: str | None = None
    turn: int | None = None
    model: str | None = None
    message_id: str | None = None
    reply: str | None = None
    """Position in the script of the reply that was sent, for example `default[2]`."""
    fault: str | None = None
    stop_reason: str | None = None
    stream: bool = False
    usage: dict[str, Any] | None = None
    cost: tuple[Model, Usage] | None = None
    """Model and token counts, from which the cost is computed when the log is read; None if there was no reply."""
    tools_hash: bytes = b""
    system_hash: bytes = b""
    prefix_hash: bytes = b""
    """Hash of the whole prompt: tools, system and messages. Requests with equal hashes share cache entries."""

    def __str__(self) -> str:
        """Format the entry as one line, which `coterie serve --verbose` prints."""
        fields = self.to_mapping()
        agent = f"{self.agent or '-'} {self.purpose or ''} {self.turn or ''}".split()
        outcome = self.error or (f"{self.reply} {self.stop_reason}" if self.reply else "")
        cost = f"cache {fields['cache']}, ${fields['cost_usd']}" if fields["cost_usd"] else ""
        parts = (f"{self.number:>4}", str(self.status), self.path, *agent, outcome, self.fault or "", cost)
        return "  ".join(part for part in (*parts, f"{1e3 * self.seconds:.0f} ms") if part)

    def to_mapping(self) -> dict[str, Any]:
        """Return the entry as JSON data, with hexadecimal hashes, the exact cost in dollars, and the `CacheState`."""
        fields = attrs.asdict(self, recurse=False)
        for name in ("tools_hash", "system_hash", "prefix_hash"):
            fields[name] = fields[name].hex() or None
        model, usage = fields.pop("cost") or (None, None)
        fields["cost_usd"] = format(model.cost(usage), "f") if model else None
        fields["cache"] = _cache_state(usage) if usage else None
        return fields


def _cache_state(usage: Usage) -> CacheState:
    written = usage.write_5m + usage.write_1h
    if usage.read:
        return "partial" if written else "hit"
    return "miss" if written else "off"


@attrs.define(eq=False)
class RequestLog:
    """Log of the most recent requests to the server, in memory. Clients read it at `/_coterie/requests`."""

    _entries: OrderedDict[int, RequestLogEntry] = attrs.field(factory=OrderedDict)
    _count: int = 0

    def next_number(self) -> int:
        """Return the number for a request that has just arrived, counted from 1."""
        self._count += 1
        return self._count

    def put(self, entry: RequestLogEntry) -> None:
        """Store *entry*. It replaces an entry with the same number; if the log is full, the oldest entry is removed."""
        self._entries[entry.number] = entry
        if len(self._entries) > KEPT:
            self._entries.popitem(last=False)

    def to_bytes(self, since: int = 0) -> bytes:
        """Return all entries with a number above *since* as JSON, in the order in which they were first stored."""
        entries = [entry.to_mapping() for entry in self._entries.values() if entry.number > since]
        return msgspec.json.encode({"requests": entries})
