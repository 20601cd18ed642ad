"""One cool-down for a whole session: the service told one of us to wait, and means all."""

import math
import random

import attrs

GAP = 0.1
"""Seconds between two starts, on average, until the crowd that a cool-down made is gone."""


@attrs.define(eq=False)
class CoolDown:
    """When the next call may start, on trio's clock."""

    jitter: random.Random
    closed_until: float = -math.inf
    _next_start: float = -math.inf
    _is_recovering: bool = False

    def lengthen(self, now: float, seconds: float) -> None:
        """Close for *seconds* and up to a quarter more. Never shortens what was said before."""
        later = now + seconds * (1 + self.jitter.random() / 4)
        self.closed_until = max(self.closed_until, later)
        self._is_recovering = True

    @property
    def opens(self) -> float:
        """The time before which nobody may start."""
        return max(self.closed_until, self._next_start)

    def started(self, now: float) -> None:
        """A call has started; after a cool-down the next one keeps its distance."""
        if self._is_recovering:
            self._next_start = now + GAP * (0.5 + self.jitter.random())

    def calm(self, now: float) -> None:
        """Nobody is waiting: once the cool-down is over, so is the recovery from it."""
        if now >= self.closed_until:
            self._is_recovering = False
