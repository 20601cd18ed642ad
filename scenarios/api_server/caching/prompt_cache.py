"""Prompt cache of the server: stored prefixes, tokens read and written, and the billed usage."""

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from coterie.agents.loop.model.usage import Usage
from coterie.scenarios.api_server.caching.breakpoints import Breakpoint, Ttl
from coterie.scenarios.api_server.caching.prompt_digest import PromptDigest

LOOKBACK = 20
"""Steps that a breakpoint looks back for an entry, itself included."""
LIFE: Mapping[Ttl, float] = {"5m": 300.0, "1h": 3600.0}
"""Seconds an entry lives from the start of the request that wrote or read it last."""
ENTRIES_LIMIT = 200_000


@attrs.frozen(kw_only=True)
class CacheResult:
    """What the cache did for one request; the four figures add up to the prompt's tokens."""

    hit: int | None
    """The position of the longest prefix that was found."""
    read: int
    write_5m: int
    write_1h: int
    uncached: int
    writes: tuple[tuple[bytes, float], ...]
    """The digest and life of each entry that becomes readable when the response begins."""
    started: float
    """When the request began: the lives of its entries count from then."""
    lookups: int
    deleted: int | None
    """Tokens that cache edits took out of what was cached before; None for a request without such edits."""


@attrs.define
class _Entry:
    life: float
    expiry: float


@attrs.define(eq=False)
class PromptCache:
    """The entries of one server, of all keys and models; a prefix's digest keeps them apart."""

    limit: int = ENTRIES_LIMIT
    _entries: dict[bytes, _Entry] = attrs.field(factory=dict, init=False)
    # One item per entry, with a time at or before its expiry: a refresh costs no work here.
    _queue: list[tuple[float, bytes]] = attrs.field(factory=list, init=False)

    def __len__(self) -> int:
        return len(self._entries)

    def look_up(self, prompt: PromptDigest, markers: Sequence[Breakpoint], *, minimum: int, now: float) -> CacheResult:
        """Find the longest cached prefix and bill the request; every entry found begins its life anew.

        *now* is the start of the request. Markers on a prefix of fewer than *minimum* tokens have no effect.
        Nothing is written: that is for `publish`.
        """
        usable = [marker for marker in markers if prompt.cumulative[marker.index] >= minimum]
        hit, lookups = -1, 0
        for marker in usable:
            found, checked = self._look_back(prompt, marker.index, now)
            hit, lookups = max(hit, found), lookups + checked
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
            lookups=lookups,
            deleted=sum(tokens for at, tokens in prompt.deletions if at > hit) if prompt.deletions else None,
        )

    def publish(self, verdict: CacheResult) -> None:
        """Make the request's entries readable; to be called once its response begins.

        An entry that is still alive keeps the longer of its old life and the new one.
        """
        for digest, life in verdict.writes:
            self._write(digest, life, verdict.started)
        self._trim(verdict.started)

    def _look_back(self, prompt: PromptDigest, index: int, now: float) -> tuple[int, int]:
        """The nearest entry at or before *index*, or -1, and how many positions were checked."""
        earliest = prompt.runs[index] - LOOKBACK
        at = index
        while at >= 0 and prompt.runs[at] > earliest:
            entry = self._entries.get(prompt.digests[at])
            if entry is not None and now <= entry.expiry:
                entry.expiry = max(entry.expiry, now + entry.life)
                return at, index - at + 1
            at -= 1
        return -1, index - at

    def _write(self, digest: bytes, life: float, started: float) -> None:
        expiry = started + life
        entry = self._entries.get(digest)
        if entry is None:
            self._entries[digest] = _Entry(life, expiry)
            heapq.heappush(self._queue, (expiry, digest))
        elif started > entry.expiry:
            entry.life, entry.expiry = life, expiry
        else:
            entry.life, entry.expiry = max(entry.life, life), max(entry.expiry, expiry)

    def _trim(self, now: float) -> None:
        """Drop what has expired, and what expires first while there is too much."""
        while self._queue and (self._queue[0][0] < now or len(self._entries) > self.limit):
            noted, digest = self._queue[0]
            expiry = self._entries[digest].expiry
            if expiry > noted:
                heapq.heapreplace(self._queue, (expiry, digest))
            else:
                heapq.heappop(self._queue)
                del self._entries[digest]


def usage_json(verdict: CacheResult, output_tokens: int, thinking_tokens: int = 0) -> dict[str, Any]:
    """The `usage` object of a reply; *thinking_tokens* are part of *output_tokens*.

    `cache_deleted_input_tokens` appears only when the request carried cache edits.
    """
    created = {
        "ephemeral_5m_input_tokens": verdict.write_5m,
        "ephemeral_1h_input_tokens": verdict.write_1h,
    }
    usage: dict[str, Any] = {
        "input_tokens": verdict.uncached,
        "cache_creation_input_tokens": verdict.write_5m + verdict.write_1h,
        "cache_read_input_tokens": verdict.read,
        "cache_creation": created,
        "output_tokens": output_tokens,
        "output_tokens_details": {"thinking_tokens": thinking_tokens},
        "service_tier": "standard",
        "inference_geo": "global",
        "iterations": [
            {
                "type": "message",
                "input_tokens": verdict.uncached,
                "output_tokens": output_tokens,
                "cache_read_input_tokens": verdict.read,
                "cache_creation_input_tokens": verdict.write_5m + verdict.write_1h,
                "cache_creation": dict(created),
            }
        ],
    }
    if verdict.deleted is not None:
        usage["cache_deleted_input_tokens"] = verdict.deleted
    return usage


def billed_usage(verdict: CacheResult, output_tokens: int) -> Usage:
    """The same figures by the price they are billed at."""
    return Usage(
        input=verdict.uncached,
        read=verdict.read,
        write_5m=verdict.write_5m,
        write_1h=verdict.write_1h,
        output=output_tokens,
    )
