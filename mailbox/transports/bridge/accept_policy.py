"""The policy for mail from other sessions: accept, hold or refuse, and at which rate."""

from typing import Literal

import attrs

from coterie.mailbox.contract import MailLimits

InboundPolicy = Literal["accept", "hold", "refuse"]
"""Store the message in the recipient's mailbox, keep it until the user decides, or reject it."""


@attrs.frozen(kw_only=True)
class AcceptPolicy:
    """Rules for mail from other sessions of the user."""

    policy: InboundPolicy = "hold"
    per_minute: float = attrs.field(default=30.0, validator=attrs.validators.gt(0))
    """Messages of one sender per minute, in the long run."""
    burst: int = attrs.field(default=10, validator=attrs.validators.ge(1))
    """Messages of one sender in quick succession."""
    repeat_window: float = 60.0
    """Seconds in which equal messages of one sender are stored once; 0 stores all of them."""
    held: MailLimits = attrs.field(factory=lambda: MailLimits(messages=1_000))
    """Limits of the mail that waits for the user."""
    patience: float = 10.0
    """Timeout in seconds for receiving or sending one frame."""
    connections: int = 64
    """Number of connections served at the same time; others wait."""


@attrs.define(eq=False)
class InboundRateLimiter:
    """Token buckets that limit the messages of each sender."""

    _per_minute: float
    _burst: int
    _buckets: dict[tuple[str, str], tuple[float, float]] = attrs.field(factory=dict, init=False)
    """Maps a sender to its tokens and the time at which they were counted."""

    def spend(self, sender: tuple[str, str], now: float) -> float:
        """Take a token of *sender*; return 0, or the seconds until there is one."""
        self._drop_full_buckets(now)
        tokens = self._tokens(sender, now)
        if tokens < 1:
            return (1 - tokens) * 60 / self._per_minute
        self._buckets[sender] = (tokens - 1, now)
        return 0.0

    def _tokens(self, sender: tuple[str, str], now: float) -> float:
        tokens, counted = self._buckets.get(sender, (float(self._burst), now))
        # If the clock was set back, no tokens are added or removed.
        return min(float(self._burst), tokens + max(0.0, now - counted) * self._per_minute / 60)

    def _drop_full_buckets(self, now: float) -> None:
        """Drop full buckets, so that only recent senders have one."""
        if len(self._buckets) > 1_000:
            self._buckets = {
                sender: bucket for sender, bucket in self._buckets.items() if self._tokens(sender, now) < self._burst
            }
