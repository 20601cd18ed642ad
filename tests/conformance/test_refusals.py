from tests.conformance.cases import (
    Api,
    Refusal,
    Request,
    assistant,
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
