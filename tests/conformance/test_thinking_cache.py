from typing import Any

import pytest

from tests.conformance.cases import assistant, marked, open_api, replied, rule, text, tool, tool_result, tool_use, user

ALPHA = tool(300, "alpha")
THINKING_LOOP = f"""
default:
  - thinking: {"h" * 400}
    tools: [alpha: {{}}]
  - {{text: okay, times: always}}
"""


async def _new_turn_after_a_tool_loop(**params: Any) -> tuple[int, int, int]:
    """Return the tokens read for a new user message, and those cached after the first and the second request."""
    async with open_api(THINKING_LOOP) as api:
        request = {"max_tokens": 4_000, "tools": [ALPHA], **params}
        asked = [user(marked(text(5_000)))]
        first = await api.send(messages=asked, **request)
        call = next(block["id"] for block in first["content"] if block["type"] == "tool_use")
        looped = [*asked, replied(first), user(marked(tool_result(call)))]
        second = await api.ask(messages=looped, **request)
        third = await api.ask(messages=[*looped, assistant(text(1)), user(marked(text(1)))], **request)
        return third.read, second.read, second.cached


@pytest.mark.parametrize("model", ["claude-opus-4-6", "claude-opus-5", "claude-sonnet-4-6", "claude-fable-5"])
@rule("extended thinking / caching: a new user turn keeps earlier thinking on newer models")
async def test_newer_models_keep_thinking_in_the_prefix(model: str) -> None:
    read, _, cached = await _new_turn_after_a_tool_loop(model=model, thinking={"type": "adaptive"})
    assert read == cached


@rule("extended thinking / caching: Opus 4.5 keeps earlier thinking too")
async def test_the_first_model_that_keeps_thinking_keeps_it() -> None:
    thinking = {"type": "enabled", "budget_tokens": 1_024}
    read, _, cached = await _new_turn_after_a_tool_loop(model="claude-opus-4-5", thinking=thinking)
    assert read == cached


@pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")  # the SDK warns of a model that is to end
@pytest.mark.parametrize("model", ["claude-haiku-4-5", "claude-sonnet-4-5"])
@rule("extended thinking / caching: a new user turn strips earlier thinking on older models")
async def test_older_models_lose_the_messages_from_the_first_thinking_on(model: str) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1_024}
    read, first, cached = await _new_turn_after_a_tool_loop(model=model, thinking=thinking)
    assert read == first == 5_300
    assert cached > first


@rule("extended thinking / caching: tool results alone keep the thinking of their turn on older models")
async def test_tool_results_keep_the_thinking_of_their_turn() -> None:
    async with open_api(THINKING_LOOP) as api:
        thinking = {"type": "enabled", "budget_tokens": 1_024}
        request = {"model": "claude-haiku-4-5", "max_tokens": 4_000, "tools": [ALPHA], "thinking": thinking}
        asked = [user(text(5_000))]
        first = await api.send(messages=asked, **request)
        call = next(block["id"] for block in first["content"] if block["type"] == "tool_use")
        looped = [*asked, replied(first), user(tool_result(call))]
        again = [assistant(tool_use("toolu_2", "alpha")), user(marked(tool_result("toolu_2")))]
        written = await api.ask(messages=[*looped[:2], user(marked(tool_result(call)))], **request)
        assert (await api.ask(messages=[*looped, *again], **request)).read == written.cached
