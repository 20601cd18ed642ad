"""Cache warm-up: of several calls with the same uncached prefix, one starts first and the others wait for its write.

The gateway knows which prefixes are cached from the calls that it admitted. A wrong guess costs only money or time:
several calls write the same prefix, or a call waits a little for a prefix that was cached.
"""

import math

import attrs

from coterie.agents.loop.conversation.cache_markers import CACHE_LIFETIMES
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.clock import Clock

TRIMMED = 1024
"""Number of known prefixes at which expired ones are first removed."""


@attrs.frozen(eq=False)
class CacheWrite:
    """Effect of one running call on the prompt cache."""

    keys: tuple[bytes, ...]
    life: float
    started: float
    """Start of the request on the session's clock; the lifetime of a cache entry counts from it."""
    blocked_until: float
    """Time on trio's clock until which other calls wait for this one."""


@attrs.frozen(kw_only=True)
class _Entry:
    life: float
    until: float


@attrs.define(eq=False)
class CacheWarmup:
    """Cached prefixes, and prefixes that a running call is writing."""

    clock: Clock
    hold: float
    """Maximum seconds that a call is held back."""
    _warm: dict[bytes, _Entry] = attrs.field(factory=dict)
    _writing: dict[bytes, CacheWrite] = attrs.field(factory=dict)
    """Running writes, by the key of the uncached prefix."""
    _trim_at: int = TRIMMED

    def blocked_until(self, keys: tuple[bytes, ...], now: float) -> float | None:
        """Return the time until which a call with *keys* must wait; None if no call is writing one of them."""
        held = now
        for key in keys:
            writer = self._writing.get(key)
            if writer is not None:
                held = max(held, writer.blocked_until)
        return held if held > now else None

    def start(self, intent: CallIntent, now: float) -> CacheWrite:
        """Record the start of a call as the writer of each uncached prefix that has no writer."""
        session_time = self.clock.now()
        warming = CacheWrite(shared_keys(intent), CACHE_LIFETIMES[intent.ttl], session_time, now + self.hold)
        for key in warming.keys:
            if (entry := self._warm.get(key)) is None or session_time >= entry.until:
                self._writing.setdefault(key, warming)
        return warming

    def begin(self, warming: CacheWrite) -> None:
        """Record that the reply to a call has begun; from now on, the cache entries of the call exist."""
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
        """Record the end of the call; if its reply never started, the next call becomes the writer."""
        for key in warming.keys:
            if self._writing.get(key) is warming:
                del self._writing[key]


def shared_keys(intent: CallIntent) -> tuple[bytes, ...]:
    """Return the keys of the prefixes that *intent* may share; none if its prompt is too short to be cached."""
    if intent.prompt_tokens < intent.model.cache_minimum:
        return ()
    return tuple(key for key in {intent.prefix: None, intent.shared: None} if key)
