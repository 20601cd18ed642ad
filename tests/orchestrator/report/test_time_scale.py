"""Time axis: positions keep the order of times, and idle gaps are shortened."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.orchestrator.report.time_scale import GAP, WIDTH, TimeScale, span_text

moments = st.floats(0, 1e7)


@given(first=moments, long=moments, busy=st.lists(st.tuples(moments, moments), max_size=8), asked=st.lists(moments))
def test_positions_are_within_the_width_and_ordered(
    first: float, long: float, busy: list[tuple[float, float]], asked: list[float]
) -> None:
    scale = TimeScale.of(first, first + long, [(min(each), max(each)) for each in busy])
    places = [scale.position(moment) for moment in sorted(asked)]
    assert all(-1e-6 <= place <= WIDTH + 1e-6 for place in places)
    assert all(later - earlier > -1e-6 for earlier, later in itertools.pairwise(places))
    ticks = [place for place, _ in scale.ticks()]
    assert ticks == sorted(ticks)
    assert len(ticks) <= 40


def test_a_long_gap_is_shortened() -> None:
    night = 8 * 3600.0
    scale = TimeScale.of(0, night + 120, [(0, 60), (night + 60, night + 120)])
    [gap] = scale.gaps
    assert scale.places[gap + 1] - scale.places[gap] == pytest.approx(GAP)
    assert scale.position(60) == pytest.approx((WIDTH - GAP) / 2)
    assert "8 h" in [label for _, label in scale.ticks()] or "8 h 1 min" in [label for _, label in scale.ticks()]


def test_positions_without_gaps_are_proportional() -> None:
    scale = TimeScale.of(100, 140, [(100, 110), (112, 140)])
    assert (scale.gaps, scale.position(110), scale.position(99), scale.position(999)) == ((), 25, 0, 100)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.0000123, "0 s"),
        (0.0114, "0.011 s"),
        (1.5, "1.5 s"),
        (59.94, "59.9 s"),
        (59.99, "1 min"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (7380, "2 h 3 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_have_one_or_two_units(seconds: float, words: str) -> None:
    assert span_text(seconds) == words
