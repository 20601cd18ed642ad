from typing import Any

import attrs
import pytest

from coterie.agents.loop.model.catalog import Section, load_models
from tests.conformance.cases import (
    MESSAGES,
    MODEL,
    SYSTEM,
    TOOLS,
    Api,
    Block,
    assistant,
    image,
    layered,
    marked,
    open_api,
    rule,
    text,
    text_block,
    tool,
    tool_result,
    tool_use,
    user,
)

ALPHA, BETA = tool(300, "alpha"), tool(300, "beta")
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
FETCH = {"type": "web_fetch_20250910", "name": "web_fetch"}
FORMAT = {"type": "json_schema", "schema": {"type": "object", "properties": {}, "additionalProperties": False}}


async def read_after(api: Api, changed: dict[str, Any], before: dict[str, Any] | None = None) -> int:
    """Return the cached tokens that the request *changed* reads after the basic request, or *before*."""
    await api.ask(**layered(**(before or {})))
    return (await api.ask(**layered(**changed))).read


@rule("prompt caching / invalidation: an unchanged request keeps tools, system and messages")
async def test_an_unchanged_request_keeps_everything(api: Api) -> None:
    assert await read_after(api, {}) == MESSAGES


@pytest.mark.parametrize(
    "tools",
    [
        [tool(60, "gamma"), ALPHA, marked(BETA)],
        [marked(ALPHA)],
        [marked(BETA)],
        [BETA, marked(ALPHA)],
        [ALPHA, marked(tool(301, "beta"))],
        [tool(300, "alphb"), marked(BETA)],
        [ALPHA, marked(tool(300, "beta", strict=False))],
    ],
    ids=["added", "last removed", "first removed", "reordered", "described", "renamed", "parameter"],
)
@rule("prompt caching / invalidation: a changed tool definition loses tools, system and messages")
async def test_a_changed_tool_loses_everything(api: Api, tools: list[Block]) -> None:
    assert await read_after(api, {"tools": tools}) == 0


@rule("prompt caching / invalidation: a tool appended behind a breakpoint loses system and messages")
async def test_an_appended_tool_loses_what_stands_behind_it(api: Api) -> None:
    """The prefix that ends with the previously marked tool is unchanged."""
    assert await read_after(api, {"tools": [ALPHA, BETA, marked(tool(60, "gamma"))]}) == TOOLS


@rule("prompt caching / invalidation: changed system text keeps the tools")
async def test_changed_system_text_keeps_the_tools(api: Api) -> None:
    assert await read_after(api, {"system": [marked(text(70, "t"))]}) == TOOLS


@pytest.mark.parametrize("tools", [[ALPHA, marked(BETA), SEARCH], [SEARCH, ALPHA, marked(BETA)]])
@rule("prompt caching / invalidation: switching web search on keeps the tools")
async def test_web_search_keeps_the_tools(api: Api, tools: list[Block]) -> None:
    assert await read_after(api, {"tools": tools}) == TOOLS


@rule("prompt caching / invalidation: switching web search off keeps the tools")
async def test_web_search_switched_off_keeps_the_tools(api: Api) -> None:
    assert await read_after(api, {}, before={"tools": [ALPHA, marked(BETA), SEARCH]}) == TOOLS


@rule("prompt caching / invalidation: switching web fetch on keeps the tools")
async def test_web_fetch_keeps_the_tools(api: Api) -> None:
    assert await read_after(api, {"tools": [ALPHA, marked(BETA), FETCH]}) == TOOLS


@pytest.mark.parametrize("was_on", [False, True])
@rule("prompt caching / invalidation: switching citations keeps the tools")
async def test_citations_keep_the_tools(api: Api, *, was_on: bool) -> None:
    def cites(*, is_on: bool) -> dict[str, Any]:
        source = {"type": "text", "media_type": "text/plain", "data": "words"}
        document = {"type": "document", "source": source, "citations": {"enabled": is_on}}
        return {"messages": [user(document, marked(text(8, "m")))]}

    assert await read_after(api, cites(is_on=not was_on), before=cites(is_on=was_on)) == TOOLS


@pytest.mark.parametrize(("before", "after"), [({}, {"speed": "fast"}), ({"speed": "fast"}, {})])
@rule("prompt caching / invalidation: switching the speed keeps the tools")
async def test_speed_keeps_the_tools(api: Api, before: dict[str, Any], after: dict[str, Any]) -> None:
    assert await read_after(api, after, before=before) == TOOLS


@rule("fast mode / speed: standard is the default")
async def test_standard_speed_is_the_default(api: Api) -> None:
    assert await read_after(api, {"speed": "standard"}) == MESSAGES


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "none"}, {"type": "tool", "name": "alpha"}])
@rule("prompt caching / invalidation: tool_choice keeps tools and system")
async def test_tool_choice_keeps_tools_and_system(api: Api, choice: dict[str, Any]) -> None:
    assert await read_after(api, {"tool_choice": choice}) == SYSTEM


@rule("prompt caching / invalidation: disable_parallel_tool_use keeps tools and system")
async def test_disabling_parallel_tool_use_keeps_tools_and_system(api: Api) -> None:
    assert await read_after(api, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}) == SYSTEM


@pytest.mark.parametrize("choice", [{"type": "auto"}, {"type": "auto", "disable_parallel_tool_use": False}])
@rule("tool use / tool_choice: auto is the default")
async def test_the_default_tool_choice_said_aloud_changes_nothing(api: Api, choice: dict[str, Any]) -> None:
    assert await read_after(api, {"tool_choice": choice}) == MESSAGES


@rule("prompt caching / invalidation: an added image keeps tools and system")
async def test_an_added_image_keeps_tools_and_system(api: Api) -> None:
    assert await read_after(api, {"messages": [user(marked(text(8, "m")), image())]}) == SYSTEM


@rule("prompt caching / invalidation: a removed image keeps tools and system")
async def test_a_removed_image_keeps_tools_and_system(api: Api) -> None:
    before = {"messages": [user(marked(text(8, "m")), image())]}
    assert await read_after(api, {}, before=before) == SYSTEM


@rule("prompt caching / invalidation: an image anywhere counts, in a tool result too")
async def test_an_image_in_a_tool_result_keeps_tools_and_system(api: Api) -> None:
    result = user(tool_result("toolu_1", [image()]))
    messages = [user(marked(text(8, "m"))), assistant(tool_use("toolu_1", "alpha")), result]
    assert await read_after(api, {"messages": messages}) == SYSTEM


@rule("prompt caching / invalidation: a second image changes nothing before it")
async def test_a_second_image_keeps_what_stands_before_it(api: Api) -> None:
    before = {"messages": [user(image(), marked(text(8, "m")))]}
    after = {"messages": [user(image(), marked(text(8, "m")), image())]}
    assert await read_after(api, after, before=before) == MESSAGES + 1_600


@pytest.mark.parametrize("thinking", [{"type": "adaptive"}, {"type": "adaptive", "display": "omitted"}])
@rule("prompt caching / invalidation: the thinking configuration loses the messages")
async def test_thinking_loses_the_messages(api: Api, thinking: dict[str, Any]) -> None:
    assert await read_after(api, {"thinking": thinking}) == SYSTEM


@rule("extended thinking / prompt caching: another budget loses the messages")
async def test_another_thinking_budget_loses_the_messages(api: Api) -> None:
    def budget(tokens: int) -> dict[str, Any]:
        return {
            "model": "claude-haiku-4-5",
            "max_tokens": 4_096,
            "system": [marked(text(5_000, "s"))],
            "thinking": {"type": "enabled", "budget_tokens": tokens},
        }

    assert await read_after(api, budget(2_048), before=budget(1_024)) == TOOLS + 5_000


@rule("prompt caching / invalidation: output_config.effort loses the messages")
async def test_effort_loses_the_messages(api: Api) -> None:
    assert await read_after(api, {"output_config": {"effort": "low"}}) == SYSTEM


@pytest.mark.parametrize(("model", "effort"), [("claude-opus-5", "high"), ("claude-opus-5-5", "medium")])
@rule("effort / default: the model's default said aloud equals none")
async def test_the_default_effort_said_aloud_changes_nothing(api: Api, model: str, effort: str) -> None:
    changed = {"model": model, "output_config": {"effort": effort}}
    assert await read_after(api, changed, before={"model": model}) == MESSAGES


@pytest.mark.parametrize(("section", "kept"), [("tools", 0), ("system", TOOLS), ("messages", SYSTEM)])
@rule("prompt caching / invalidation: what thinking and effort lose beside the messages is the model's")
async def test_what_thinking_loses_beside_the_messages_is_told_by_the_model(section: Section, kept: int) -> None:
    known = load_models()
    changed = attrs.evolve(known.models[MODEL], thinking_invalidates=section)
    async with open_api(models=attrs.evolve(known, models={**known.models, MODEL: changed})) as api:
        assert await read_after(api, {"output_config": {"effort": "low"}}) == kept


@rule("structured outputs / prompt caching: output_config.format changes the system prompt")
async def test_an_output_format_keeps_the_tools_alone() -> None:
    async with open_api("default: [{text: '{}', times: always}]") as api:
        assert await read_after(api, {"output_config": {"format": FORMAT}}) == TOOLS


@rule("prompt caching / isolation: another model is another cache")
async def test_another_model_keeps_nothing(api: Api) -> None:
    assert await read_after(api, {"model": "claude-fable-5"}) == 0


@pytest.mark.parametrize(
    "changed",
    [{"max_tokens": 99}, {"stop_sequences": ["STOP"]}, {"metadata": {"user_id": "u"}}, {"service_tier": "auto"}],
    ids=lambda changed: next(iter(changed)),
)
@rule("prompt caching / invalidation: what is not listed keeps everything")
async def test_other_parameters_keep_everything(api: Api, changed: dict[str, Any]) -> None:
    assert await read_after(api, changed) == MESSAGES


@rule("streaming / prompt caching: a stream and a whole reply share their entries")
async def test_a_stream_reads_what_a_whole_reply_wrote(api: Api) -> None:
    await api.ask(**layered())
    other = attrs.evolve(api, is_streamed=not api.is_streamed)
    assert (await other.ask(**layered())).read == MESSAGES


@rule("tool search / defer_loading: deferred tools are not in the prefix")
async def test_a_deferred_tool_keeps_everything_and_costs_nothing(api: Api) -> None:
    tools = [tool(60, "late", defer_loading=True), ALPHA, marked(BETA), tool(60, "later", defer_loading=True)]
    first = await api.ask(**layered())
    second = await api.ask(**layered(tools=tools))
    assert (second.read, second.total) == (MESSAGES, first.total)


@rule("mid-conversation system messages / caching: they append without breaking the prefix")
async def test_a_system_message_in_the_conversation_keeps_everything_before_it(api: Api) -> None:
    messages = [user(marked(text(8, "m"))), assistant(text(1)), user(text(1)), {"role": "system", "content": "new"}]
    assert await read_after(api, {"messages": messages}) == MESSAGES


@pytest.mark.parametrize("kind", ["tool_addition", "tool_removal"])
@rule("mid-conversation tool changes / caching: they append without breaking the prefix")
async def test_a_tool_change_in_the_conversation_keeps_everything_before_it(api: Api, kind: str) -> None:
    change = {"type": kind, "tool": {"type": "tool_reference", "name": "alpha"}}
    messages = [user(marked(text(8, "m"))), {"role": "system", "content": [change]}, user(text_block("go on"))]
    betas = ("mid-conversation-tool-changes-2026-07-01",)
    assert await read_after(api, {"messages": messages, "betas": betas}) == MESSAGES
