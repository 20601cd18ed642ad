"""What a reader does when mail comes thick: it lets it gather, instead of being woken for every message.

To go to sleep and to be rung costs both ends more than the message. Writers that are faster than the reader never find
it asleep; those that wait for a disk would ring for each one.
"""

import attrs
import trio

THICK = 0.0004
"""Seconds within which one ring follows another when mail comes thick."""
MANY = 8
"""Rings in a row that must have come so."""
GATHERING = 0.001
"""Seconds for which nobody rings then."""
WIDE_AWAKE = 0.1
"""Seconds for which a reader does not try again after it has waited for a single message: somebody may be waiting for
an answer to each."""


@attrs.define(eq=False)
class Doze:
    """Decides for one reader."""

    _rang: float = 0.0
    _in_a_row: int = 0
    _awake_until: float = 0.0
    _has_gathered: bool = False
    _came: int = 0
    """Messages since it has gathered."""

    def note_ring(self) -> None:
        """The reader was woken."""
        before, self._rang = self._rang, trio.current_time()
        self._in_a_row = self._in_a_row + 1 if self._rang - before < THICK else 0

    def note_messages(self, count: int) -> None:
        """So many came."""
        self._came += count

    async def gather(self) -> bool:
        """Let mail gather for a moment if it comes thick; return whether it did, and one should look."""
        if self._has_gathered and self._came < 2:
            self._in_a_row, self._awake_until = 0, trio.current_time() + WIDE_AWAKE
        self._has_gathered, self._came = False, 0
        if self._in_a_row < MANY or trio.current_time() < self._awake_until:
            return False
        self._has_gathered = True
        await trio.sleep(GATHERING)
        return True
