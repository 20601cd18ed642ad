import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.errors import ModelOverloaded, ModelRateLimited, ModelRefusedRequest
from coterie.agents.loop.model.client import RetryPolicy


def test_waits_double_up_to_longest_then_policy_gives_up() -> None:
    class NoJitter(random.Random):
        def random(self) -> float:
            return 0.0

    policy = RetryPolicy(attempts=7, jitter=NoJitter())
    waits = [policy.wait(ModelOverloaded("busy"), attempt) for attempt in range(1, 8)]
    assert waits == [0.5, 1, 2, 4, 8, 8, None]


def test_invalid_request_is_not_retried() -> None:
    assert RetryPolicy().wait(ModelRefusedRequest("no", status=400), 1) is None


@given(st.integers(0), st.integers(1, 4), st.floats(0, 1e6))
def test_jitter_never_shortens_retry_after(seed: int, attempt: int, asked: float) -> None:
    policy = RetryPolicy(jitter=random.Random(seed))
    wait = policy.wait(ModelRateLimited("slow down", retry_after=asked), attempt)
    assert wait is not None
    assert min(asked, 60) <= wait <= 75


@pytest.mark.parametrize("attempt", [1, 2, 3, 4])
def test_jitter_only_shortens_own_waits(attempt: int) -> None:
    full = min(0.5 * 2 ** (attempt - 1), 8)
    for seed in range(50):
        wait = RetryPolicy(jitter=random.Random(seed)).wait(ModelOverloaded("busy"), attempt)
        assert wait is not None
        assert 0.75 * full <= wait <= full
