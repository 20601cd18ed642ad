import pytest

from coterie.agents.loop.model.catalog import load_models
from tests.conformance.cases import Api, Bill, marked, rule, text, tool, user

DOCUMENTED = {
    "claude-fable-5": 512,
    "claude-fable-5-1": 512,
    "claude-mythos-5": 512,
    "claude-mythos-5-1": 512,
    "claude-opus-5": 512,
    "claude-opus-5-5": 512,
    "claude-sonnet-5-5": 512,
    "claude-opus-4-8": 1_024,
    "claude-sonnet-5": 1_024,
    "claude-sonnet-4-6": 1_024,
    "claude-sonnet-4-5": 1_024,
    "claude-opus-4-7": 2_048,
    "claude-opus-4-6": 4_096,
    "claude-opus-4-5": 4_096,
    "claude-haiku-4-5": 4_096,
}
UNDOCUMENTED = {"claude-fable-5-2": 512, "claude-mythos-5-2": 512, "claude-haiku-5-5": 512}
"""Assumed to be like similar models."""
MINIMUMS = DOCUMENTED | UNDOCUMENTED

# The SDK warns of a deprecated model, which the server still serves.
pytestmark = pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")


@rule("models / overview: every model of the table has a cache minimum")
async def test_every_model_of_the_table_is_covered() -> None:
    assert set(load_models().models) == set(MINIMUMS)


@pytest.mark.parametrize("model", MINIMUMS)
@rule("prompt caching / minimum: a prefix one token short is silently not cached")
async def test_a_prefix_below_the_minimum_is_not_cached(api: Api, model: str) -> None:
    short = {"model": model, "messages": [user(marked(text(MINIMUMS[model] - 1)))]}
    for _ in range(2):
        assert await api.ask(**short) == Bill(uncached=MINIMUMS[model] - 1)


@pytest.mark.parametrize("model", MINIMUMS)
@rule("prompt caching / minimum: a prefix of just the minimum is cached")
async def test_a_prefix_of_the_minimum_is_cached(api: Api, model: str) -> None:
    enough = {"model": model, "messages": [user(marked(text(MINIMUMS[model])))]}
    assert await api.ask(**enough) == Bill(write_5m=MINIMUMS[model])
    assert await api.ask(**enough) == Bill(read=MINIMUMS[model])


@rule("prompt caching / minimum: the whole prefix counts, not the marked block")
async def test_tools_and_system_count_towards_the_minimum(api: Api) -> None:
    request = {"tools": [tool(300)], "system": [text(200)], "messages": [user(marked(text(12)))]}
    assert await api.ask(**request) == Bill(write_5m=512)


@rule("prompt caching / minimum: a breakpoint too early leaves later ones in force")
async def test_a_breakpoint_below_the_minimum_leaves_the_others_in_force(api: Api) -> None:
    request = {"system": [marked(text(100), "1h")], "messages": [user(marked(text(500)))]}
    assert await api.ask(**request) == Bill(write_5m=600)
    assert await api.ask(system=[marked(text(100))], messages=[user(text(500, "y"))]) == Bill(uncached=600)
