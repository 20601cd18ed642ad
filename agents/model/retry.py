"""When a failed model call is tried again, and after how long."""

import random

import attrs

from coterie.agents.errors import ModelError


@attrs.frozen(kw_only=True)
class RetryPolicy:
    """Waits double from *first_wait* up to *longest_wait*, each shortened by up to a quarter at random."""

    attempts: int = 5
    """Calls in all, the first included."""
    first_wait: float = 0.5
    longest_wait: float = 8.0
    retry_after_cap: float = 60.0
    """Seconds we obey a `retry-after` for: the header may ask for hours, and a person is waiting."""
    jitter: random.Random = attrs.field(factory=random.Random)

    def wait(self, error: ModelError, attempt: int) -> float | None:
        """Seconds to wait after the *attempt*-th call (from 1) failed with *error*; None to give up."""
        if not error.retryable or attempt >= self.attempts:
            return None
        if error.retry_after is not None:
            # Never earlier than asked, within the cap; a little later so that callers do not return as one.
            asked = min(error.retry_after, self.retry_after_cap)
            return asked * (1 + self.jitter.random() / 4)
        wait = min(self.first_wait * 2.0 ** (attempt - 1), self.longest_wait)
        return wait * (1 - self.jitter.random() / 4)
