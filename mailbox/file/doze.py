"""What a reader does when mail comes thick: it lets it gather, instead of being woken for every message.

To go to sleep and to be rung costs both ends more than the message. Writers that are faster than the reader never find
it asleep; those that wait for a disk would ring for each one.
"""

import math

import attrs
import trio

IN_A_ROW = 8
"""Waits, each within `GATHERING` of the last, after which mail comes thick."""
GATHERING = 0.001
"""Seconds for which a reader then lets it gather, as long as several messages come of it."""
WIDE_AWAKE = 1.0
"""Seconds for which it does not try again after a single one: somebody may be waiting for an answer to each."""


@attrs.define(eq=False)
class Doze:
    """Decides for one reader."""

    _came: int = 0
    """Messages since the last wait."""
    _waited: float = -math.inf
    """When that began."""
    _in_a_row: int = 0
    _has_gathered: bool = False
    _awake_until: float = -math.inf

    def note_messages(self, count: int) -> None:
        """So many came."""
        self._came += count

    async def gather(self) -> bool:
        """Called before each wait. Let mail gather for a moment if it comes thick; return whether to look for it."""
        now = trio.current_time()
        if not self._has_gathered:
            self._in_a_row = self._in_a_row + 1 if now - self._waited < GATHERING else 0
        elif self._came < 2:
            self._in_a_row, self._awake_until = 0, now + WIDE_AWAKE
        self._came, self._waited = 0, now
        self._has_gathered = self._in_a_row >= IN_A_ROW and now >= self._awake_until
        if self._has_gathered:
            await trio.sleep(GATHERING)
        return self._has_gathered
