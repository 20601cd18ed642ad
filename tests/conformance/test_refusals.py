from typing import Any

import pytest

from tests.conformance.cases import (
    Api,
    assistant,
    marked,
    open_api,
    replied,
    rule,
    text,
    text_block,
    tool,
    tool_result,
    tool_use,
    user,
)

CANNOT_BE_MODIFIED = (
    "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
    "modified. These blocks must remain as they were in the original response."
)
FORCED = 'tool_choice: type "tool" and "any" are not supported for this model.'
LOOP = """
default:
  - {thinking: first thought, tools: [lookup: {}]}
  - {text: okay, times: always}
"""


@rule("errors / context window: an input beyond the window is refused with both figures")
async def test_a_prompt_beyond_the_window_is_refused(api: Api) -> None:
    refusal = await api.refusal(model="claude-haiku-4-5", messages=[user(text(200_251))])
    assert refusal == "prompt is too long: 200251 tokens > 200000 maximum"


@rule("context windows / prompt caching: cached tokens count towards the window")
async def test_cached_tokens_count_towards_the_window(api: Api) -> None:
    system = [marked(text(199_000))]
    await api.ask(model="claude-haiku-4-5", system=system)
    refusal = await api.refusal(model="claude-haiku-4-5", system=system, messages=[user(text(1_001))])
    assert refusal == "prompt is too long: 200001 tokens > 200000 maximum"


@rule("errors / max_tokens: more than the model's longest reply is refused")
async def test_too_many_output_tokens_are_refused(api: Api) -> None:
    """The SDK requires a timeout for such long replies."""
    assert await api.refusal(max_tokens=128_001, timeout=30) == (
        "max_tokens: 128001 > 128000, which is the maximum allowed number of output tokens for claude-opus-5"
    )


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5-1", "claude-fable-5-2"])
@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "lookup"}])
@rule("errors / tool_choice: newer models take no forced choice")
async def test_a_forced_tool_choice_is_refused(api: Api, model: str, choice: dict[str, str]) -> None:
    assert await api.refusal(model=model, tools=[tool(60)], tool_choice=choice) == FORCED


@pytest.mark.parametrize("model", ["claude-opus-4-7", "claude-opus-5", "claude-fable-5-2"])
@rule("adaptive thinking / migration: newer models take no thinking budget")
async def test_a_thinking_budget_is_refused(api: Api, model: str) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1_024}
    assert await api.refusal(model=model, max_tokens=4_000, thinking=thinking) == (
        '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
        '"output_config.effort" to control thinking behavior.'
    )


@pytest.mark.parametrize("model", ["claude-opus-4-6", "claude-opus-5", "claude-haiku-5-5"])
@rule("errors / prefill: newer models continue no begun reply")
async def test_a_prefill_is_refused(api: Api, model: str) -> None:
    assert await api.refusal(model=model, messages=[user(text(1)), assistant(text_block("I"))]) == (
        "This model does not support assistant message prefill. The conversation must end with a user message."
    )


@rule("tool use / results: every call is answered in the next message")
async def test_an_unanswered_tool_call_is_refused(api: Api) -> None:
    refusal = await api.refusal(messages=[user(text(1)), assistant(tool_use("toolu_1")), user(text(1))])
    assert "`tool_use` ids were found without `tool_result` blocks immediately after: toolu_1" in refusal


async def _loop(api: Api, **request: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a reply with thinking and a tool call, as it is sent back, and the message that answers it."""
    spoken = replied(await api.send(tools=[tool(60)], max_tokens=500, **request))
    return spoken, user(tool_result(spoken["content"][1]["id"]))


@rule("extended thinking / tool use: thinking of the open turn comes back unmodified")
async def test_modified_thinking_is_refused() -> None:
    async with open_api(LOOP) as api:
        request = {"messages": [user(text(1))], "thinking": {"type": "adaptive"}}
        spoken, answer = await _loop(api, **request)
        spoken["content"][0]["thinking"] = "another thought"
        changed = {**request, "messages": [*request["messages"], spoken, answer]}
        assert await api.refusal(tools=[tool(60)], **changed) == CANNOT_BE_MODIFIED


@rule("extended thinking / tool use: thinking of the open turn comes back complete")
async def test_missing_thinking_is_refused() -> None:
    async with open_api(LOOP) as api:
        request = {"messages": [user(text(1))], "thinking": {"type": "adaptive"}}
        spoken, answer = await _loop(api, **request)
        changed = {**request, "messages": [*request["messages"], assistant(spoken["content"][1]), answer]}
        assert await api.refusal(tools=[tool(60)], **changed) == CANNOT_BE_MODIFIED


@rule("adaptive thinking / binding: newest models refuse thinking behind another prefix")
async def test_thinking_behind_another_prefix_is_refused() -> None:
    async with open_api(LOOP) as api:
        request = {"model": "claude-opus-5-5", "messages": [user(text(1))]}
        spoken, answer = await _loop(api, **request)
        changed = {**request, "messages": [user(text(2)), spoken, answer]}
        refusal = await api.refusal(tools=[tool(60)], **changed)
    assert refusal == "messages.1.content.0: The block is bound to a different conversation"


@rule("versioning / sampling: the newest version takes no sampling parameters")
async def test_sampling_is_refused_by_the_newest_version(api: Api) -> None:
    assert (await api.refusal(temperature=1.0)).startswith("temperature: ")
