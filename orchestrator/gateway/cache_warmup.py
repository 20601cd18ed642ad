"""Cache warm-up: of calls with the same uncached prefix, one goes first.

Whether a prefix is warm is known from the calls that passed the gate, and read from the session's clock. Being wrong
costs money, never correctness: too warm, and siblings write the same entry; too cold, and one call waits a little.
"""

import math

import attrs

from coterie.agents.loop.conversation.cache_markers import CACHE_LIFETIMES
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.clock import Clock

TRIMMED = 1024
"""Prefixes that may be known before the first look for expired ones."""


@attrs.frozen(eq=False)
class CacheWrite:
    """What one call under way does to the cache."""

    keys: tuple[bytes, ...]
    life: float
    started: float
    """On the session's clock: an entry's life counts from the start of the request."""
    blocked_until: float
    """On trio's clock: others wait for this call no longer."""


@attrs.frozen(kw_only=True)
class _Entry:
    life: float
    until: float


@attrs.define(eq=False)
class CacheWarmup:
    """Which prefixes can be read now, and which are just being written."""

    clock: Clock
    hold: float
    """Seconds for which a call is held back at most."""
    _warm: dict[bytes, _Entry] = attrs.field(factory=dict)
    _writing: dict[bytes, CacheWrite] = attrs.field(factory=dict)
    """By prefixes that were not warm, and are not yet."""
    _trim_at: int = TRIMMED

    def blocked_until(self, keys: tuple[bytes, ...], now: float) -> float | None:
        """When to look again whether a call with *keys* may start; None when nobody is writing one of them."""
        held = now
        for key in keys:
            writer = self._writing.get(key)
            if writer is not None:
                held = max(held, writer.blocked_until)
        return held if held > now else None

    def start(self, intent: CallIntent, now: float) -> CacheWrite:
        """The call starts; it leads where nobody else is writing."""
        session_time = self.clock.now()
        warming = CacheWrite(shared_keys(intent), CACHE_LIFETIMES[intent.ttl], session_time, now + self.hold)
        for key in warming.keys:
            if not self._is_warm(key, session_time):
                self._writing.setdefault(key, warming)
        return warming

    def begin(self, warming: CacheWrite) -> None:
        """The call's reply has begun: what it wrote or read lives for another while."""
        for key in warming.keys:
            self._writing.pop(key, None)
            entry = self._warm.get(key)
            # A hit refreshes an entry for the life it was written with, whatever the reader's marker asks for.
            life = entry.life if entry is not None and warming.started < entry.until else warming.life
            until = max(warming.started + life, entry.until if entry is not None else -math.inf)
            self._warm[key] = _Entry(life=life, until=until)
        self._trim()

    def end(self, warming: CacheWrite) -> None:
        """The call is over; if its reply never began, the next one leads."""
        for key in warming.keys:
            if self._writing.get(key) is warming:
                del self._writing[key]

    def _is_warm(self, key: bytes, session_time: float) -> bool:
        entry = self._warm.get(key)
        return entry is not None and session_time < entry.until

    def _trim(self) -> None:
        """Forget the expired whenever as many have come again as were left: each call pays for one."""
        if len(self._warm) >= self._trim_at:
            session_time = self.clock.now()
            self._warm = {key: entry for key, entry in self._warm.items() if session_time < entry.until}
            self._trim_at = max(TRIMMED, 2 * len(self._warm))


def shared_keys(intent: CallIntent) -> tuple[bytes, ...]:
    """The prefixes *intent* has in common with others; none when it is too short to be cached."""
    if intent.prompt_tokens < intent.model.cache_minimum:
        return ()
    return tuple(key for key in {intent.prefix: None, intent.shared: None} if key)
