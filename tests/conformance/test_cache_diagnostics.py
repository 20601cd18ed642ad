from typing import Any

import pytest

from tests.conformance.cases import MODEL, Api, assistant, layered, marked, rule, text, text_block, tool, user
from tests.embedded_server import open_sdk

FIRST_TURN = {"previous_message_id": None}
"""Parameters that request diagnoses from the next turn on."""


async def diagnose(api: Api, changes: dict[str, Any], **before: Any) -> Any:
    """Return the diagnosis of a changed request."""
    earlier = await api.send(**layered(**before), diagnostics=FIRST_TURN)
    changed = layered(**changes, diagnostics={"previous_message_id": earlier["id"]})
    return (await api.send(**changed))["diagnostics"]


def missed(kind: str, tokens: int) -> dict[str, Any]:
    """Return a diagnosis with the tokens that could not be read."""
    return {"cache_miss_reason": {"type": kind, "cache_missed_input_tokens": tokens}}


@rule("cache diagnostics / null: an unchanged prefix has no divergence")
async def test_a_conversation_that_only_grew_has_no_diagnosis(api: Api) -> None:
    grown = [user(text(8, "m")), assistant(text(1)), user(marked(text(1)))]
    assert await diagnose(api, {"messages": grown}) is None


@rule("cache diagnostics / opting in: previous_message_id is null on the first turn")
async def test_the_first_turn_has_no_diagnosis(api: Api) -> None:
    assert (await api.send(**layered(), diagnostics=FIRST_TURN))["diagnostics"] is None


@rule("cache diagnostics / opting in: without the parameter there is no diagnosis")
async def test_without_the_parameter_there_is_no_diagnosis(api: Api) -> None:
    assert (await api.send(**layered())).get("diagnostics") is None


@rule("cache diagnostics / model_changed: another model")
async def test_another_model_is_named(api: Api) -> None:
    assert await diagnose(api, {"model": "claude-fable-5"}) == missed("model_changed", 678)


@rule("cache diagnostics / model_changed: another speed")
async def test_another_speed_is_named_as_the_model(api: Api) -> None:
    assert (await diagnose(api, {"speed": "fast"}))["cache_miss_reason"]["type"] == "model_changed"


@pytest.mark.parametrize(
    "tools",
    [
        [tool(300, "beta"), marked(tool(300, "alpha"))],
        [tool(300, "alphb"), marked(tool(300, "beta"))],
    ],
    ids=["reordered", "renamed"],
)
@rule("cache diagnostics / tools_changed: added, removed, reordered or edited")
async def test_changed_tools_are_named(api: Api, tools: list[dict[str, Any]]) -> None:
    assert await diagnose(api, {"tools": tools}) == missed("tools_changed", 678)


@rule("cache diagnostics / system_changed: another system prompt")
async def test_a_changed_system_prompt_is_named(api: Api) -> None:
    assert await diagnose(api, {"system": [marked(text(70, "t"))]}) == missed("system_changed", 78)


@rule("cache diagnostics / messages_changed: an earlier entry differs")
async def test_a_changed_message_is_named(api: Api) -> None:
    before = [user(text(8, "m")), assistant(text(3, "a")), user(marked(text(4, "u")))]
    after = [user(text(8, "m")), assistant(text(3, "b")), user(marked(text(4, "u")))]
    assert await diagnose(api, {"messages": after}, messages=before) == missed("messages_changed", 7)


@rule("cache diagnostics / messages_changed: a conversation cut short")
async def test_a_shortened_conversation_is_named(api: Api) -> None:
    before = [user(text(8, "m")), assistant(text(3)), user(marked(text(4)))]
    found = await diagnose(api, {}, messages=before)
    assert found["cache_miss_reason"]["type"] == "messages_changed"


@rule("cache diagnostics / previous_message_not_found: an id the API has no record of")
async def test_an_unknown_message_is_not_found(api: Api) -> None:
    reply = await api.send(**layered(), diagnostics={"previous_message_id": "msg_unknown"})
    assert reply["diagnostics"] == {"cache_miss_reason": {"type": "previous_message_not_found"}}


@rule("cache diagnostics / previous_message_not_found: the message of another workspace")
async def test_the_message_of_another_key_is_not_found(whole: Api) -> None:
    async with open_sdk(whole.served, key="another-key") as client:
        create: Any = client.messages.create
        theirs = await create(model=MODEL, max_tokens=16, messages=[user(text_block("hello"))], diagnostics=FIRST_TURN)
    reply = await whole.send(**layered(), diagnostics={"previous_message_id": theirs.id})
    assert reply["diagnostics"] == {"cache_miss_reason": {"type": "previous_message_not_found"}}


@pytest.mark.parametrize(
    "changed",
    [{"tool_choice": {"type": "none"}}, {"thinking": {"type": "adaptive"}}, {"output_config": {"effort": "low"}}],
    ids=lambda changed: next(iter(changed)),
)
@rule("cache diagnostics / unavailable: only other parameters of the prompt differ")
async def test_other_parameters_have_no_name(api: Api, changed: dict[str, Any]) -> None:
    assert await diagnose(api, changed) == {"cache_miss_reason": {"type": "unavailable"}}


@rule("cache diagnostics / precedence: the model is named before tools, system and messages")
async def test_the_first_difference_in_the_prompt_is_named(api: Api) -> None:
    everything = {"system": [marked(text(70, "t"))], "messages": [user(marked(text(8, "n")))]}
    assert await diagnose(api, everything) == missed("system_changed", 78)
    everything["tools"] = [marked(tool(600, "gamma"))]
    assert await diagnose(api, everything) == missed("tools_changed", 678)
    assert await diagnose(api, {**everything, "model": "claude-fable-5"}) == missed("model_changed", 678)


@rule("cache diagnostics / streaming: the diagnosis stands on message_start")
async def test_a_stream_opens_with_its_diagnosis(whole: Api) -> None:
    earlier = await whole.send(**layered(), diagnostics=FIRST_TURN)
    create: Any = whole.client.messages.create
    request = layered(system=[marked(text(70, "t"))], diagnostics={"previous_message_id": earlier["id"]})
    stream = await create(model=MODEL, max_tokens=16, stream=True, **request)
    opening, *_ = [event.to_dict() async for event in stream]
    assert opening["message"]["diagnostics"] == missed("system_changed", 78)


@rule("cache diagnostics / accuracy: what is diagnosed as missed is written anew")
async def test_a_diagnosis_agrees_with_the_bill(api: Api) -> None:
    earlier = await api.send(**layered(), diagnostics=FIRST_TURN)
    changed = layered(system=[marked(text(70, "t"))], diagnostics={"previous_message_id": earlier["id"]})
    reply = await api.send(**changed)
    written = reply["usage"]["cache_creation_input_tokens"]
    assert reply["diagnostics"] == missed("system_changed", written)
