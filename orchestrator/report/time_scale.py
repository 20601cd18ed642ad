"""Time axis of the report: maps times to horizontal positions, shortens idle periods, and formats times as text."""

import bisect
import itertools
import math
import time
from collections.abc import Iterable, Iterator

import attrs

WIDTH = 100.0
"""Position of the right end of the axis; positions are percentages of its width."""
GAP = 3.0
"""Width of a shortened period without a running agent, in per cent of the axis, whatever its duration."""
LONG = 0.15
"""Share of the session's duration that a period without a running agent must exceed to be shortened."""
TICKS = 6

_STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400)


@attrs.frozen
class TimeScale:
    """Map from times to positions on the axis; linear except for shortened periods without a running agent."""

    moments: tuple[float, ...]
    """Times between which the axis is linear: its start and end, and those of each shortened period."""
    places: tuple[float, ...]
    """Position on the axis of each time in `moments`, in per cent of the width."""
    gaps: tuple[int, ...] = ()
    """Indexes in `moments` of the times at which a shortened period (without a running agent) begins."""

    @classmethod
    def of(cls, first: float, last: float, busy: Iterable[tuple[float, float]]) -> "TimeScale":
        """Build an axis from *first* to *last*; *busy* are the periods (begin, end) in which some agent was alive."""
        last = max(last, first + 0.001)
        joints = [first, *(moment for gap in _gaps(first, last, busy) for moment in gap), last]
        gaps = tuple(range(1, len(joints) - 1, 2))
        worked = sum(joints[at + 1] - joints[at] for at in range(0, len(joints) - 1, 2))
        places = [0.0]
        for at in range(len(joints) - 1):
            room = WIDTH - GAP * len(gaps)
            wide = GAP if at in gaps else room * (joints[at + 1] - joints[at]) / worked
            places.append(places[-1] + wide)
        return cls(tuple(joints), tuple(places), gaps)

    def position(self, moment: float) -> float:
        """Return the position of time *moment* in per cent; of a time outside the axis, that of the nearer end."""
        at = min(max(bisect.bisect_right(self.moments, moment) - 1, 0), len(self.moments) - 2)
        begin, end = self.moments[at], self.moments[at + 1]
        share = min(max((moment - begin) / (end - begin), 0.0), 1.0) if end > begin else 0.0
        return self.places[at] + share * (self.places[at + 1] - self.places[at])

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Yield position and label of each tick: round times since the start of the axis, such as `5 min`."""
        first, worked = self.moments[0], 0.0
        for at in range(0, len(self.moments) - 1, 2):
            worked += self.moments[at + 1] - self.moments[at]
        step = next((step for step in _STEPS if worked / step <= TICKS), math.ceil(worked / TICKS / 86400) * 86400)
        for at in range(0, len(self.moments) - 1, 2):
            count = math.ceil((self.moments[at] - first) / step - 1e-9)
            while first + count * step <= self.moments[at + 1]:
                yield self.position(first + count * step), span_text(count * step)
                count += 1


def span_text(seconds: float) -> str:
    """Return a duration as text in one or two units, such as `0.25 s` or `2 h 5 min`."""
    if seconds < 59.95:
        return f"{round(seconds, 3):.3g} s"
    whole = round(seconds)
    for (size, unit), (less, small) in itertools.pairwise(_UNITS):
        if whole >= size:
            rest = whole % size // less
            return f"{whole // size} {unit} {rest} {small}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def moment_text(moment: float) -> str:
    """Return a time as local date, time and zone, such as `2026-01-31 09:30:00 +0100`."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(moment))


def since_text(moment: float, first: float) -> str:
    """Return the time from *first*, the session's first event, to *moment* as text, such as `+3.20 s`; at least 0."""
    seconds = max(moment - first, 0.0)
    # Two decimals, so that the lines of a column align.
    return f"+{seconds:.2f} s" if seconds < 59.995 else f"+{span_text(seconds)}"


_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def _gaps(first: float, last: float, busy: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield (begin, end) of each period between *busy* periods that is longer than `LONG` times the whole time."""
    shortest, reached = LONG * (last - first), first
    for begin, end in sorted(busy):
        # After the clock was set back, an agent can run outside of the session's interval.
        if min(begin, last) - reached > shortest and reached > first:
            yield reached, min(begin, last)
        reached = max(reached, min(end, last))
