from collections.abc import Mapping
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
    Bill,
    History,
    Request,
    assistant,
    history,
    image,
    layered,
    marked,
    open_api,
    replied,
    rule,
    rules,
    said,
    text,
    text_block,
    tool,
    tool_result,
    tool_use,
    user,
)
from tests.embedded_server import open_sdk

ALPHA, BETA = tool(300, "alpha"), tool(300, "beta")
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
FETCH = {"type": "web_fetch_20250910", "name": "web_fetch"}
FORMAT = {"type": "json_schema", "schema": {"type": "object", "properties": {}, "additionalProperties": False}}
QUESTION = marked(text(8, "m"))
OPUS = "claude-opus-5-5"
NO_CHANGE: Mapping[str, Any] = {}


def kept(tokens: int, before: Mapping[str, Any] = NO_CHANGE, **changed: Any) -> History:
    """Return the history in which a changed request reads *tokens* that the request before has written."""
    return history(layered(**before), layered(**changed), tokens)


def cited(*, is_on: bool) -> Request:
    source = {"type": "text", "media_type": "text/plain", "data": "words"}
    return said({"type": "document", "source": source, "citations": {"enabled": is_on}}, QUESTION)


def budget(tokens: int) -> Request:
    thinking = {"type": "enabled", "budget_tokens": tokens}
    long = [marked(text(5_000, "s"))]
    return {"model": "claude-haiku-4-5", "max_tokens": 4_096, "system": long, "thinking": thinking}


def sequential(*behind: Any) -> Request:
    return {"messages": [user(QUESTION), *behind]}


CHANGED_TOOLS = {
    "added in front": [tool(60, "gamma"), ALPHA, marked(BETA)],
    "removed at the end": [marked(ALPHA)],
    "removed at the start": [marked(BETA)],
    "moved": [BETA, marked(ALPHA)],
    "described otherwise": [ALPHA, marked(tool(301, "beta"))],
    "renamed": [tool(300, "alphb"), marked(BETA)],
    "with another parameter": [ALPHA, marked(tool(300, "beta", strict=False))],
}
WEB_TOOLS = {"search": [ALPHA, marked(BETA), SEARCH], "search in front": [SEARCH, ALPHA, marked(BETA)]}
CHOICES: dict[str, Request] = {
    "any": {"type": "any"},
    "none": {"type": "none"},
    "a tool": {"type": "tool", "name": "alpha"},
    "no parallel use": {"type": "auto", "disable_parallel_tool_use": True},
}
SAME_CHOICES: dict[str, Request] = {
    "alone": {"type": "auto"},
    "with parallel use": {"type": "auto", "disable_parallel_tool_use": False},
}
LATE = [tool(60, "late", defer_loading=True), ALPHA, marked(BETA), tool(60, "later", defer_loading=True)]
TOOL_CHANGES = ("mid-conversation-tool-changes-2026-07-01",)

HISTORIES: dict[str, History] = {
    "prompt caching / invalidation: an unchanged request keeps tools, system and messages": kept(MESSAGES),
    **{f"prompt caching / invalidation: a tool {how} loses all": kept(0, tools=t) for how, t in CHANGED_TOOLS.items()},
    "prompt caching / invalidation: a tool appended behind a breakpoint loses system and messages": kept(
        TOOLS, tools=[ALPHA, BETA, marked(tool(60, "gamma"))]
    ),
    "prompt caching / invalidation: changed system text keeps the tools": kept(TOOLS, system=[marked(text(70, "t"))]),
    **{
        f"prompt caching / invalidation: web {how} keeps the tools": kept(TOOLS, tools=t)
        for how, t in WEB_TOOLS.items()
    },
    "prompt caching / invalidation: switching web search off keeps the tools": kept(
        TOOLS, {"tools": WEB_TOOLS["search"]}
    ),
    "prompt caching / invalidation: switching web fetch on keeps the tools": kept(
        TOOLS, tools=[ALPHA, marked(BETA), FETCH]
    ),
    "prompt caching / invalidation: citations keep the tools": kept(TOOLS, cited(is_on=False), **cited(is_on=True)),
    "prompt caching / invalidation: no citations keep the tools": kept(TOOLS, cited(is_on=True), **cited(is_on=False)),
    "prompt caching / invalidation: fast speed keeps the tools": kept(TOOLS, speed="fast"),
    "prompt caching / invalidation: normal speed keeps the tools": kept(TOOLS, {"speed": "fast"}),
    "fast mode / speed: standard is the default": kept(MESSAGES, speed="standard"),
    **{
        f"prompt caching / invalidation: tool_choice keeps tools and system: {name}": kept(SYSTEM, tool_choice=choice)
        for name, choice in CHOICES.items()
    },
    **{
        f"tool use / tool_choice: auto is the default, {name}": kept(MESSAGES, tool_choice=choice)
        for name, choice in SAME_CHOICES.items()
    },
    "prompt caching / invalidation: an added image keeps tools and system": kept(SYSTEM, **said(QUESTION, image())),
    "prompt caching / invalidation: a removed image keeps tools and system": kept(SYSTEM, said(QUESTION, image())),
    "prompt caching / invalidation: an image anywhere counts, in a tool result too": kept(
        SYSTEM, **sequential(assistant(tool_use("toolu_1", "alpha")), user(tool_result("toolu_1", [image()])))
    ),
    "prompt caching / invalidation: a second image changes nothing before it": kept(
        MESSAGES + 1_600, said(image(), QUESTION), **said(image(), QUESTION, image())
    ),
    "prompt caching / invalidation: thinking loses the messages": kept(SYSTEM, thinking={"type": "adaptive"}),
    "prompt caching / invalidation: omitted thinking loses the messages": kept(
        SYSTEM, thinking={"type": "adaptive", "display": "omitted"}
    ),
    "extended thinking / prompt caching: another budget loses the messages": kept(
        TOOLS + 5_000, budget(1_024), **budget(2_048)
    ),
    "prompt caching / invalidation: output_config.effort loses the messages": kept(
        SYSTEM, output_config={"effort": "low"}
    ),
    "effort / default: high, said aloud, equals none": kept(MESSAGES, output_config={"effort": "high"}),
    "effort / default: of Opus 5.5 it is medium": kept(
        MESSAGES, {"model": OPUS}, model=OPUS, output_config={"effort": "medium"}
    ),
    "prompt caching / isolation: another model is another cache": kept(0, model="claude-fable-5"),
    "prompt caching / invalidation: max_tokens keeps everything": kept(MESSAGES, max_tokens=99),
    "prompt caching / invalidation: stop_sequences keep everything": kept(MESSAGES, stop_sequences=["STOP"]),
    "prompt caching / invalidation: metadata keeps everything": kept(MESSAGES, metadata={"user_id": "u"}),
    "prompt caching / invalidation: service_tier keeps everything": kept(MESSAGES, service_tier="auto"),
    "tool search / defer_loading: deferred tools are not in the prefix and cost nothing": history(
        layered(), layered(tools=LATE), Bill(read=MESSAGES)
    ),
    "mid-conversation system messages / caching: they append without breaking the prefix": kept(
        MESSAGES, **sequential(assistant(text(1)), user(text(1)), {"role": "system", "content": "new"})
    ),
    **{
        f"mid-conversation tool changes / caching: a {kind} appends without breaking the prefix": kept(
            MESSAGES,
            **sequential(
                {"role": "system", "content": [{"type": kind, "tool": {"type": "tool_reference", "name": "alpha"}}]},
                user(text_block("go on")),
            ),
            betas=TOOL_CHANGES,
        )
        for kind in ("tool_addition", "tool_removal")
    },
}


@rules(HISTORIES)
async def test_changed_request_reads_only_what_the_change_keeps(api: Api, row: History) -> None:
    await api.play(row)


@pytest.mark.parametrize(("section", "tokens"), [("tools", 0), ("system", TOOLS), ("messages", SYSTEM)])
@rule("prompt caching / invalidation: what thinking and effort lose beside the messages is the model's")
async def test_what_thinking_loses_beside_the_messages_is_told_by_the_model(section: Section, tokens: int) -> None:
    known = load_models()
    changed = attrs.evolve(known.models[MODEL], thinking_invalidates=section)
    async with open_api(models=attrs.evolve(known, models={**known.models, MODEL: changed})) as api:
        await api.play(kept(tokens, output_config={"effort": "low"}))


@rule("structured outputs / prompt caching: output_config.format changes the system prompt")
async def test_an_output_format_keeps_the_tools_alone() -> None:
    async with open_api("default: [{text: '{}', times: always}]") as api:
        await api.play(kept(TOOLS, output_config={"format": FORMAT}))


@rule("streaming / prompt caching: a stream and a whole reply share their entries")
async def test_a_stream_reads_what_a_whole_reply_wrote(api: Api) -> None:
    await api.ask(**layered())
    other = attrs.evolve(api, is_streamed=not api.is_streamed)
    assert (await other.ask(**layered())).read == MESSAGES


@rule("prompt caching / isolation: organizations and workspaces share nothing, clients with one key everything")
async def test_only_another_key_reads_nothing(api: Api) -> None:
    """The server treats each key as a separate workspace."""
    await api.ask(**layered())
    for key, bill in (("test-key", Bill(read=MESSAGES)), ("another-key", Bill(write_5m=MESSAGES))):
        async with open_sdk(api.served, key) as client:
            other = attrs.evolve(api, client=client)
            await other.play(history(layered(), bill, layered(), Bill(read=MESSAGES)))


@rule("prompt caching / isolation: models share nothing, whatever the order of requests")
async def test_each_model_has_its_own_entries(api: Api) -> None:
    for expected in (Bill(write_5m=600), Bill(read=600)):
        for model in ("claude-opus-5", "claude-fable-5", "claude-sonnet-5-5"):
            assert await api.ask(model=model, **said(marked(text(600)))) == expected


@pytest.mark.parametrize(
    ("alias", "dated"),
    [("claude-opus-4-5", "claude-opus-4-5-20251101"), ("claude-haiku-4-5-20251001", "claude-haiku-4-5")],
)
@rule("models / aliases: an alias and its dated id are one model with one cache")
async def test_an_alias_reads_what_the_dated_id_wrote(api: Api, alias: str, dated: str) -> None:
    reply = await api.send(model=dated, **said(marked(text(5_000))))
    assert (reply["model"], Bill.of(reply["usage"])) == (dated, Bill(write_5m=5_000))
    assert await api.ask(model=alias, **said(marked(text(5_000)))) == Bill(read=5_000)


@rule("prompt caching / branches: conversations that part share what came before")
async def test_a_diverging_conversation_leaves_the_shared_prefix_alone(api: Api) -> None:
    """Two conversations with one system prompt alternate."""
    other = layered(**said(marked(text(9, "o"))))
    await api.play(history(layered(), 0, other, 670, layered(), MESSAGES, other, 679))


THINKING_LOOP = f"""
default:
  - thinking: {"h" * 400}
    tools: [alpha: {{}}]
  - {{text: okay, times: always}}
"""
ENABLED: Request = {"thinking": {"type": "enabled", "budget_tokens": 1_024}}


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


NEWER = ("claude-opus-4-6", "claude-opus-5", "claude-sonnet-4-6", "claude-fable-5")


@pytest.mark.parametrize(
    ("model", "thinking"),
    [("claude-opus-4-5", ENABLED), *((model, {"thinking": {"type": "adaptive"}}) for model in NEWER)],
)
@rule("extended thinking / caching: a new user turn keeps earlier thinking on models from Opus 4.5 on")
async def test_newer_models_keep_thinking_in_the_prefix(model: str, thinking: Request) -> None:
    read, _, cached = await _new_turn_after_a_tool_loop(model=model, **thinking)
    assert read == cached


@pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")  # the SDK warns of a model that is to end
@pytest.mark.parametrize("model", ["claude-haiku-4-5", "claude-sonnet-4-5"])
@rule("extended thinking / caching: a new user turn strips earlier thinking on older models")
async def test_older_models_lose_the_messages_from_the_first_thinking_on(model: str) -> None:
    read, first, cached = await _new_turn_after_a_tool_loop(model=model, **ENABLED)
    assert read == first == 5_300
    assert cached > first


@rule("extended thinking / caching: tool results alone keep the thinking of their turn on older models")
async def test_tool_results_keep_the_thinking_of_their_turn() -> None:
    async with open_api(THINKING_LOOP) as api:
        request = {"model": "claude-haiku-4-5", "max_tokens": 4_000, "tools": [ALPHA], **ENABLED}
        asked = [user(text(5_000))]
        first = await api.send(messages=asked, **request)
        call = next(block["id"] for block in first["content"] if block["type"] == "tool_use")
        looped = [*asked, replied(first), user(tool_result(call))]
        again = [assistant(tool_use("toolu_2", "alpha")), user(marked(tool_result("toolu_2")))]
        written = await api.ask(messages=[*looped[:2], user(marked(tool_result(call)))], **request)
        assert (await api.ask(messages=[*looped, *again], **request)).read == written.cached
