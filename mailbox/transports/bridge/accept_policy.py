"""The policy for mail from other sessions: accept, hold or refuse, and at which rate."""

from typing import Literal

import attrs

from coterie.mailbox.contract import MailLimits

InboundPolicy = Literal["accept", "hold", "refuse"]
"""Hand it on at once, keep it until the user decides, or take none."""


@attrs.frozen(kw_only=True)
class AcceptPolicy:
    """What a session grants to other sessions of its user."""

    policy: InboundPolicy = "hold"
    per_minute: float = attrs.field(default=30.0, validator=attrs.validators.gt(0))
    """Messages of one sender, in the long run."""
    burst: int = attrs.field(default=10, validator=attrs.validators.ge(1))
    """Messages of one sender at once."""
    repeat_window: float = 60.0
    """Seconds in which the same words of one sender are taken once; 0 takes them as often as they come."""
    held: MailLimits = attrs.field(factory=lambda: MailLimits(messages=1_000))
    """How much may wait for the user."""
    patience: float = 10.0
    """Seconds in which a frame must come or go."""
    connections: int = 64
    """Connections that are served at once; others wait."""


@attrs.define(eq=False)
class InboundRateLimiter:
    """How many messages each sender may still send: a bucket of tokens per sender."""

    _per_minute: float
    _burst: int
    _buckets: dict[tuple[str, str], tuple[float, float]] = attrs.field(factory=dict, init=False)
    """Sender -> (tokens, when they were counted)."""

    def spend(self, sender: tuple[str, str], now: float) -> float:
        """Take a token of *sender*: 0, or the seconds until there is one."""
        self._forget(now)
        tokens = self._tokens(sender, now)
        if tokens < 1:
            return (1 - tokens) * 60 / self._per_minute
        self._buckets[sender] = (tokens - 1, now)
        return 0.0

    def _tokens(self, sender: tuple[str, str], now: float) -> float:
        tokens, counted = self._buckets.get(sender, (float(self._burst), now))
        # A clock that was set back gives nothing, and takes nothing away.
        return min(float(self._burst), tokens + max(0.0, now - counted) * self._per_minute / 60)

    def _forget(self, now: float) -> None:
        """Drop full buckets, so that there are only as many as senders of the last minutes."""
        if len(self._buckets) > 1_000:
            self._buckets = {
                sender: bucket for sender, bucket in self._buckets.items() if self._tokens(sender, now) < self._burst
            }
