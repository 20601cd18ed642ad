from typing import Any

import attrs

from tests.conformance.cases import (
    MODEL,
    Api,
    Request,
    assistant,
    layered,
    marked,
    rule,
    rules,
    said,
    text,
    text_block,
    tool,
    user,
)
from tests.embedded_server import open_sdk

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
    """Return a diagnosis."""
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
