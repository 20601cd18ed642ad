"""The layers in a session of real parts: the short version of `benchmarks/layers.py`."""

import functools

import pytest

from benchmarks.layers import BASELINE, UNFOLLOWED, setups
from benchmarks.long_session import LongSession, build_session
from benchmarks.recorded_runs import DIRECTORY, has_runs
from benchmarks.session_run import Setup, run_session
from tests.data import absent

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_runs(), reason=absent(DIRECTORY)),
]

CALLS, SEED = 70, 4
WINDOW = 70_000
"""A window so small that the API clears in a session this short."""
LAYERED = {setup.name: setup for setup in setups(WINDOW) if setup.name not in (BASELINE, "1", UNFOLLOWED)}

ALL_MECHANISMS = "1 + 2a + 2b + 2c"


@functools.cache
def session() -> LongSession:
    return build_session(CALLS, SEED)


def must_fire(setup: Setup) -> set[str]:
    """Return the mechanisms that must fire; together with cheaper ones, the API may have nothing to clear."""
    return set(setup.mechanisms) - ({"api"} if len(setup.mechanisms) > 2 else set())


@pytest.mark.parametrize(
    "name", [name if name == ALL_MECHANISMS else pytest.param(name, marks=pytest.mark.soak) for name in LAYERED]
)
async def test_long_session_fires_every_mechanism_without_unannounced_cache_miss(name: str) -> None:
    played = await run_session(session(), LAYERED[name])
    assert [entry["status"] for entry in played.requests] == [200] * len(session().replies)
    assert not {mechanism for mechanism in must_fire(LAYERED[name]) if not played.fired(mechanism).times}
    assert played.breaks(is_expired=False) == []
    assert played.repeats == 0


def test_generated_session_is_equal_for_equal_seed() -> None:
    assert build_session(CALLS, SEED) == session()
    assert build_session(CALLS, SEED + 1) != session()
