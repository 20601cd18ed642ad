from typing import Any

import attrs

from tests.conformance.cases import (
    MODEL,
    Api,
    Refusal,
    Request,
    assistant,
    layered,
    marked,
    open_api,
    refusal,
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

CANNOT_BE_MODIFIED = (
    "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be "
    "modified. These blocks must remain as they were in the original response."
)
FORCED = 'tool_choice: type "tool" and "any" are not supported for this model.'
NO_BUDGET = (
    '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
    '"output_config.effort" to control thinking behavior.'
)
NO_PREFILL = "This model does not support assistant message prefill. The conversation must end with a user message."
UNANSWERED = (
    "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1. Each `tool_use` "
    "block must have a corresponding `tool_result` block in the next message."
)
PREWARM: Request = {"max_tokens": 0, "system": [marked(text(600))]}
UNWARMED = "max_tokens: 0 fills the prompt cache only and cannot be used with"
BUDGET = {"type": "enabled", "budget_tokens": 1_024}
FORMAT = {"type": "json_schema", "schema": {"type": "object", "properties": {}, "additionalProperties": False}}
CHOICES: dict[str, Request] = {"any": {"type": "any"}, "tool": {"type": "tool", "name": "lookup"}}

REFUSALS: dict[str, Refusal] = {
    "errors / context window: an input beyond the window is refused with both figures": refusal(
        said(text(200_251), model="claude-haiku-4-5"), "prompt is too long: 200251 tokens > 200000 maximum"
    ),
    # The SDK requires a timeout for such long replies.
    "errors / max_tokens: more than the model's longest reply is refused": refusal(
        {"max_tokens": 128_001, "timeout": 30},
        "max_tokens: 128001 > 128000, which is the maximum allowed number of output tokens for claude-opus-5",
    ),
    **{
        f"errors / tool_choice: {model} takes no forced choice, {name}": refusal(
            {"model": model, "tools": [tool(60)], "tool_choice": choice}, FORCED
        )
        for model in ("claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5-1", "claude-fable-5-2")
        for name, choice in CHOICES.items()
    },
    **{
        f"adaptive thinking / migration: {model} takes no thinking budget": refusal(
            {"model": model, "max_tokens": 4_000, "thinking": BUDGET}, NO_BUDGET
        )
        for model in ("claude-opus-4-7", "claude-opus-5", "claude-fable-5-2")
    },
    **{
        f"errors / prefill: {model} continues no begun reply": refusal(
            {"model": model, "messages": [user(text(1)), assistant(text_block("I"))]}, NO_PREFILL
        )
        for model in ("claude-opus-4-6", "claude-opus-5", "claude-haiku-5-5")
    },
    "tool use / results: every call is answered in the next message": refusal(
        {"messages": [user(text(1)), assistant(tool_use("toolu_1")), user(text(1))]}, UNANSWERED
    ),
    "versioning / sampling: the newest version takes no sampling parameters": refusal(
        {"temperature": 1.0}, "temperature: ..."
    ),
}


@rules(REFUSALS)
async def test_request_is_refused(api: Api, row: Refusal) -> None:
    await api.check_refusal(row)


PREWARMING: dict[str, Refusal] = {
    "prompt caching / pre-warming: refused with stream": refusal(
        {**PREWARM, "stream": True}, f"{UNWARMED} `stream`: true"
    ),
    "prompt caching / pre-warming: refused with thinking enabled": refusal(
        {**PREWARM, "model": "claude-haiku-4-5", "thinking": BUDGET}, f"{UNWARMED} `thinking` enabled"
    ),
    "prompt caching / pre-warming: refused with output_config.format": refusal(
        {**PREWARM, "output_config": {"format": FORMAT}}, f"{UNWARMED} `output_config.format`"
    ),
    **{
        f"prompt caching / pre-warming: refused with tool_choice {name}": refusal(
            {**PREWARM, "tools": [tool(60)], "tool_choice": choice}, f'{UNWARMED} `tool_choice` of type "any" or "tool"'
        )
        for name, choice in CHOICES.items()
    },
}


@rules(PREWARMING)
async def test_prewarming_is_refused(whole: Api, row: Refusal) -> None:
    await whole.check_refusal(row)


@rule("context windows / prompt caching: cached tokens count towards the window")
async def test_cached_tokens_count_towards_the_window(api: Api) -> None:
    request = {"model": "claude-haiku-4-5", "system": [marked(text(199_000))]}
    await api.ask(**request)
    message = await api.refusal(**request, **said(text(1_001)))
    assert message == "prompt is too long: 200001 tokens > 200000 maximum"


@rule("extended thinking / tool use: thinking of the open turn comes back, complete and unmodified")
async def test_changed_or_missing_thinking_of_open_turn_is_refused() -> None:
    """The newest models also refuse thinking behind another prefix."""
    script = "default: [{thinking: first thought, tools: [lookup: {}]}]"
    for model in (None, "claude-opus-5-5"):
        async with open_api(script) as api:
            request = {"tools": [tool(60)], "max_tokens": 500, "thinking": {"type": "adaptive"}}
            request |= {"model": model} if model else {}
            spoken = replied(await api.send(**request))
            thought, call = spoken["content"]
            answer = user(tool_result(call["id"]))
            for content in ([call], [{**thought, "thinking": "another thought"}, call]):
                messages = [user(text(1)), assistant(*content), answer]
                assert await api.refusal(messages=messages, **request) == CANNOT_BE_MODIFIED
            if model:
                message = await api.refusal(messages=[user(text(2)), spoken, answer], **request)
                assert message == "messages.1.content.0: The block is bound to a different conversation"


FIRST_TURN = {"previous_message_id": None}
"""Parameters that request diagnoses from the next turn on."""


@attrs.frozen
class Case:
    """A changed request and its diagnosis: kind, and the tokens that could not be read if the diagnosis has them."""

    kind: str | None
    tokens: int | None
    changes: Request
    before: Request = attrs.field(factory=dict)


def missed(kind: str, tokens: int | None) -> dict[str, Any]:
    return {"cache_miss_reason": {"type": kind} | ({} if tokens is None else {"cache_missed_input_tokens": tokens})}


def dialogue(answer: str) -> Request:
    return {"messages": [user(text(8, "m")), assistant(text(3, answer)), user(marked(text(4, "u")))]}


SWAPPED = [tool(300, "beta"), marked(tool(300, "alpha"))]
RENAMED = [tool(300, "alphb"), marked(tool(300, "beta"))]
SYSTEM = {"system": [marked(text(70, "t"))]}
BELOW = {**SYSTEM, **said(marked(text(8, "n")))}
TOOLS = {**BELOW, "tools": [marked(tool(600, "gamma"))]}
GROWN = {"messages": [user(text(8, "m")), assistant(text(1)), user(marked(text(1)))]}

CASES = {
    "cache diagnostics / null: an unchanged prefix has no divergence": Case(None, None, GROWN),
    "cache diagnostics / model_changed: another model": Case("model_changed", 678, {"model": "claude-fable-5"}),
    "cache diagnostics / model_changed: another speed": Case("model_changed", 78, {"speed": "fast"}),
    "cache diagnostics / tools_changed: reordered": Case("tools_changed", 678, {"tools": SWAPPED}),
    "cache diagnostics / tools_changed: renamed": Case("tools_changed", 678, {"tools": RENAMED}),
    "cache diagnostics / system_changed: another system prompt": Case("system_changed", 78, SYSTEM),
    "cache diagnostics / messages_changed: an earlier entry differs": Case(
        "messages_changed", 7, dialogue("b"), dialogue("a")
    ),
    "cache diagnostics / messages_changed: a conversation cut short": Case("messages_changed", 0, {}, dialogue("a")),
    "cache diagnostics / unavailable: only tool_choice differs": Case(
        "unavailable", None, {"tool_choice": {"type": "none"}}
    ),
    "cache diagnostics / unavailable: only thinking differs": Case(
        "unavailable", None, {"thinking": {"type": "adaptive"}}
    ),
    "cache diagnostics / unavailable: only the effort differs": Case(
        "unavailable", None, {"output_config": {"effort": "low"}}
    ),
    "cache diagnostics / precedence: system before messages": Case("system_changed", 78, BELOW),
    "cache diagnostics / precedence: tools before system and messages": Case("tools_changed", 678, TOOLS),
    "cache diagnostics / precedence: the model first": Case("model_changed", 678, {**TOOLS, "model": "claude-fable-5"}),
}


@rules(CASES)
async def test_changed_request_is_diagnosed(api: Api, row: Case) -> None:
    earlier = await api.send(**layered(**row.before), diagnostics=FIRST_TURN)
    assert earlier["diagnostics"] is None
    reply = await api.send(**layered(**row.changes, diagnostics={"previous_message_id": earlier["id"]}))
    assert reply["diagnostics"] == (None if row.kind is None else missed(row.kind, row.tokens))
    if row.kind == "system_changed":
        assert reply["usage"]["cache_creation_input_tokens"] == row.tokens, "what was missed is written"


@rule("cache diagnostics / opting in: without the parameter there is no diagnosis")
async def test_without_the_parameter_there_is_no_diagnosis(api: Api) -> None:
    assert (await api.send(**layered())).get("diagnostics") is None


@rule("cache diagnostics / previous_message_not_found: an id that is unknown, or of another workspace")
async def test_an_unknown_message_is_not_found(whole: Api) -> None:
    async with open_sdk(whole.served, key="another-key") as client:
        theirs = await attrs.evolve(whole, client=client).send(**said(text_block("hello")), diagnostics=FIRST_TURN)
    for name in ("msg_unknown", theirs["id"]):
        reply = await whole.send(**layered(), diagnostics={"previous_message_id": name})
        assert reply["diagnostics"] == missed("previous_message_not_found", None)


@rule("cache diagnostics / streaming: the diagnosis stands on message_start")
async def test_a_stream_opens_with_its_diagnosis(whole: Api) -> None:
    earlier = await whole.send(**layered(), diagnostics=FIRST_TURN)
    create: Any = whole.client.messages.create
    request = layered(**SYSTEM, diagnostics={"previous_message_id": earlier["id"]})
    stream = await create(model=MODEL, max_tokens=16, stream=True, **request)
    opening, *_ = [event.to_dict() async for event in stream]
    assert opening["message"]["diagnostics"] == missed("system_changed", 78)
