"""Simulated prompt cache of the server: cached prefixes, tokens read and written, and the billed usage."""

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from coterie.agents.loop.model.usage import Usage
from coterie.scenarios.api_server.caching.breakpoints import Breakpoint, Ttl
from coterie.scenarios.api_server.caching.prompt_digest import PromptDigest

LOOKBACK = 20
"""Steps back from a breakpoint, its own included, that a lookup tries; a step is a block or a run of tool blocks."""
LIFE: Mapping[Ttl, float] = {"5m": 300.0, "1h": 3600.0}
"""Lifetime in seconds of a cache entry by `ttl`, from the start of the last request that wrote or read it."""


@attrs.frozen(kw_only=True)
class CacheResult:
    """Cache result of one request: tokens read, written and uncached, which add up to the prompt, and new entries."""

    hit: int | None
    """Index of the last block of the longest cached prefix that the lookup found; None if it found none."""
    read: int
    write_5m: int
    write_1h: int
    uncached: int
    writes: tuple[tuple[bytes, float], ...]
    """Hash and lifetime in seconds of each cache entry that becomes readable when the response starts."""
    started: float
    """Start of the request in seconds since the epoch; the lifetimes of its cache entries begin then."""
    deleted: int | None
    """Tokens of tool results that `cache_edits` blocks after the cached prefix delete; None without such blocks."""


@attrs.define
class _Entry:
    life: float
    expiry: float


@attrs.define(eq=False)
class PromptCache:
    """Simulated prompt cache: hashes of the cached prefixes with their expiry times.

    A hash includes the API key and the model, so no entry is shared between keys or models.
    """

    limit: int = 200_000
    _entries: dict[bytes, _Entry] = attrs.field(factory=dict, init=False)
    # One item for each entry, at or before its expiry, so that refreshing an entry needs no update here.
    _queue: list[tuple[float, bytes]] = attrs.field(factory=list, init=False)

    def __len__(self) -> int:
        return len(self._entries)

    def look_up(self, prompt: PromptDigest, markers: Sequence[Breakpoint], *, minimum: int, now: float) -> CacheResult:
        """Find the longest prefix cached at most `LOOKBACK` steps before a breakpoint; count tokens read and written.

        *now* is the start of the request. A breakpoint in *markers* after fewer than *minimum* tokens has no effect.
        Renews the lifetime of the entries that it finds, but stores none; call `publish` for that.
        """
        usable = [marker for marker in markers if prompt.cumulative[marker.index] >= minimum]
        hit = max((self._look_back(prompt, marker.index, now) for marker in usable), default=-1)
        read = prompt.tokens_at(hit)
        last = max((marker.index for marker in usable), default=-1)
        last_1h = max((marker.index for marker in usable if marker.ttl == "1h"), default=-1)
        up_to_1h = prompt.tokens_at(max(hit, last_1h))
        marked = prompt.tokens_at(last)
        return CacheResult(
            hit=hit if hit >= 0 else None,
            read=read,
            write_1h=up_to_1h - read,
            write_5m=marked - up_to_1h,
            uncached=prompt.total - marked,
            writes=tuple((prompt.digests[marker.index], LIFE[marker.ttl]) for marker in usable),
            started=now,
            deleted=sum(tokens for at, tokens in prompt.deletions if at > hit) if prompt.deletions else None,
        )

    def publish(self, result: CacheResult) -> None:
        """Store the cache entries of a request, so that later requests can read them; call it when the response starts.

        An entry that has not expired keeps the longer of its old and new lifetimes.
        """
        started = result.started
        for digest, life in result.writes:
            expiry = started + life
            entry = self._entries.get(digest)
            if entry is None:
                self._entries[digest] = _Entry(life, expiry)
                heapq.heappush(self._queue, (expiry, digest))
            elif started > entry.expiry:
                entry.life, entry.expiry = life, expiry
            else:
                entry.life, entry.expiry = max(entry.life, life), max(entry.expiry, expiry)
        self._trim(started)

    def _look_back(self, prompt: PromptDigest, index: int, now: float) -> int:
        """Renew the nearest cached prefix within `LOOKBACK` steps up to *index*; return its index, -1 without one."""
        earliest, at = prompt.runs[index] - LOOKBACK, index
        while at >= 0 and prompt.runs[at] > earliest:
            entry = self._entries.get(prompt.digests[at])
            if entry is not None and now <= entry.expiry:
                entry.expiry = max(entry.expiry, now + entry.life)
                return at
            at -= 1
        return -1

    def _trim(self, now: float) -> None:
        """Remove expired entries; beyond the limit, also remove the entries that expire first."""
        while self._queue and (self._queue[0][0] < now or len(self._entries) > self.limit):
            noted, digest = self._queue[0]
            expiry = self._entries[digest].expiry
            if expiry > noted:
                heapq.heapreplace(self._queue, (expiry, digest))
            else:
                heapq.heappop(self._queue)
                del self._entries[digest]


def usage_json(result: CacheResult, output_tokens: int, thinking_tokens: int = 0) -> dict[str, Any]:
    """Return the `usage` object of a response; *thinking_tokens* are a part of *output_tokens*.

    The field `cache_deleted_input_tokens` is present only if the request has cache edits.
    """
    counts: dict[str, Any] = {
        "input_tokens": result.uncached,
        "cache_creation_input_tokens": result.write_5m + result.write_1h,
        "cache_read_input_tokens": result.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": result.write_5m,
            "ephemeral_1h_input_tokens": result.write_1h,
        },
        "output_tokens": output_tokens,
    }
    usage = {
        **counts,
        "output_tokens_details": {"thinking_tokens": thinking_tokens},
        "service_tier": "standard",
        "inference_geo": "global",
        "iterations": [{"type": "message", **counts}],
    }
    if result.deleted is not None:
        usage["cache_deleted_input_tokens"] = result.deleted
    return usage


def billed_usage(result: CacheResult, output_tokens: int) -> Usage:
    """Return the token counts of a request by price category, from which its cost is computed."""
    return Usage(
        input=result.uncached,
        read=result.read,
        write_5m=result.write_5m,
        write_1h=result.write_1h,
        output=output_tokens,
    )
