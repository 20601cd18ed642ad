"""Cache warm-up: of several calls with the same uncached prefix, one starts first and writes the prefix to the cache.

The others wait for that write. The gateway knows only from the calls that it admitted which prefixes are cached. If it
is wrong, several calls write the same prefix, or a call waits a little although its prefix is cached.
"""

import math

import attrs

from coterie.agents.loop.conversation.cache_markers import CACHE_LIFETIMES
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.clock import Clock

TRIMMED = 1024
"""Number of known prefixes at which expired ones are removed for the first time."""


@attrs.frozen(eq=False)
class CacheWrite:
    """Prompt prefixes that one running call may write to the prompt cache, with lifetime and times."""

    keys: tuple[bytes, ...]
    life: float
    started: float
    """Start of the request on the session's clock. The lifetime of a cache entry begins then."""
    blocked_until: float
    """Time on trio's clock until which calls with the same prefix wait for this call."""


@attrs.frozen(kw_only=True)
class _Entry:
    life: float
    until: float


@attrs.define(eq=False)
class CacheWarmup:
    """Prompt prefixes that are cached, and those that a running call is writing to the cache."""

    clock: Clock
    hold: float
    """Maximum seconds that a call waits for another call's write."""
    _warm: dict[bytes, _Entry] = attrs.field(factory=dict)
    _writing: dict[bytes, CacheWrite] = attrs.field(factory=dict)
    """Running calls that write to the cache, by the hash of the prefix."""
    _trim_at: int = TRIMMED

    def blocked_until(self, keys: tuple[bytes, ...], now: float) -> float | None:
        """Return the time until which a call with the prefixes *keys* must wait; None if it may start at *now*."""
        held = now
        for key in keys:
            writer = self._writing.get(key)
            if writer is not None:
                held = max(held, writer.blocked_until)
        return held if held > now else None

    def start(self, intent: CallIntent, now: float) -> CacheWrite:
        """Record the start of call *intent*: it becomes the writer of its uncached prefixes that have no writer yet."""
        session_time = self.clock.now()
        warming = CacheWrite(shared_keys(intent), CACHE_LIFETIMES[intent.ttl], session_time, now + self.hold)
        for key in warming.keys:
            if (entry := self._warm.get(key)) is None or session_time >= entry.until:
                self._writing.setdefault(key, warming)
        return warming

    def begin(self, warming: CacheWrite) -> None:
        """Record that the reply to a call has begun: its prefixes are in the cache now."""
        for key in warming.keys:
            self._writing.pop(key, None)
            entry = self._warm.get(key)
            # A hit refreshes an entry for the lifetime it was written with, whatever the marker of the reader says.
            life = entry.life if entry is not None and warming.started < entry.until else warming.life
            until = max(warming.started + life, entry.until if entry is not None else -math.inf)
            self._warm[key] = _Entry(life=life, until=until)
        # Expired entries are removed each time the number of entries has doubled, so the cost per call is constant.
        if len(self._warm) >= self._trim_at:
            session_time = self.clock.now()
            self._warm = {key: entry for key, entry in self._warm.items() if session_time < entry.until}
            self._trim_at = max(TRIMMED, 2 * len(self._warm))

    def end(self, warming: CacheWrite) -> None:
        """Record the end of a call. If its reply never began, the next call with its prefix becomes the writer."""
        for key in warming.keys:
            if self._writing.get(key) is warming:
                del self._writing[key]


def shared_keys(intent: CallIntent) -> tuple[bytes, ...]:
    """Return hashes of prefixes that *intent* may share with other calls; none if the prompt is too short to cache."""
    if intent.prompt_tokens < intent.model.cache_minimum:
        return ()
    return tuple(key for key in {intent.prefix: None, intent.shared: None} if key)
