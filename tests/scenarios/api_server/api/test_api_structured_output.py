"""Structured output over HTTP: a scripted reply follows the schema, or the error names the violation."""

from typing import Any

import msgspec
import pytest

from tests.embedded_server import open_served
from tests.scenarios.api_server.api.api_client import ask, open_strict_sdk, request, script_replying
from tests.scenarios.api_server.request_samples import tool

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
FORMAT: dict[str, Any] = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
LOOSE = tool("Plan", input_schema=SCHEMA)
STRICT = tool("Plan", strict=True, input_schema=SCHEMA)
GOOD = '{"city": "Oslo", "days": [1, 2]}'


def calling(name: str, **arguments: Any) -> str:
    return msgspec.json.encode({"default": [{"tools": [{name: arguments}]}]}).decode()


async def test_a_reply_that_keeps_to_the_schema_goes_out_as_it_is() -> None:
    async with open_served(script_replying(GOOD)) as served:
        async with open_strict_sdk(served) as client:
            params: dict[str, Any] = request(**FORMAT)
            message = await client.messages.create(**params)
        assert message.content[0].type == "text"
        assert message.content[0].text == GOOD
    async with open_served(script_replying("Oslo")) as served:
        older = request(output_format=FORMAT["output_config"]["format"])
        answer = await ask(served, older, anthropic_version="2023-06-01")
        assert "script reply default[1] is not the JSON" in answer.error


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Oslo, for two days", "script reply default[1] is not the JSON that output_config.format asks for"),
        ('{"city": "Oslo"}', "script reply default[1] does not satisfy output_config.format: $: required property"),
        ('{"city": "Oslo", "days": ["one"]}', "$.days[0]: expected integer, found string"),
        ('{"city": "Oslo", "days": [], "more": 1}', "$: property 'more' is not allowed"),
        ("[" * 100_000, "script reply default[1] is not the JSON"),
    ],
)
async def test_a_reply_that_breaks_the_schema_is_the_scripts_fault(said: str, words: str) -> None:
    async with open_served(script_replying(said)) as served:
        answer = await ask(served, request(max_tokens=100_000, **FORMAT))
        assert (answer.status, served.requests[0]["reply"]) == (400, "default[1]")
        assert words in answer.error


BUILT_IN = [{"type": "bash_20250124", "name": "bash", "strict": True}, {"type": "mcp_toolset", "strict": True}]


@pytest.mark.parametrize(
    ("script", "fields", "is_strict"),
    [
        (script_replying("no", stop="refusal"), FORMAT, True),
        (script_replying(GOOD), {**FORMAT, "max_tokens": 2}, True),
        (calling("Read", path="a"), {**FORMAT, "tools": [tool("Read")]}, True),
        (calling("Plan", nonsense=1), {"tools": [LOOSE]}, True),
        (calling("bash", command="ls"), {"tools": BUILT_IN}, True),
        (script_replying("Oslo"), {**FORMAT, "tools": [STRICT]}, False),
        (calling("Plan", nonsense=1), {**FORMAT, "tools": [STRICT]}, False),
    ],
    ids=["refused", "cut", "tool call", "not strict", "built-in tool", "text if lenient", "call if lenient"],
)
async def test_reply_is_exempt_from_the_schema(script: str, fields: dict[str, Any], *, is_strict: bool) -> None:
    async with open_served(script, is_strict=is_strict) as served:
        assert (await ask(served, request(**fields))).status == 200


async def test_a_strict_tool_is_called_by_its_schema() -> None:
    async with open_served(calling("Plan", city="Oslo", days=[1])) as served:
        assert (await ask(served, request(tools=[STRICT]))).json["stop_reason"] == "tool_use"
    async with open_served(calling("Plan", city="Oslo")) as served:
        answer = await ask(served, request(tools=[STRICT]))
        assert answer.error.startswith(
            "script reply default[1] calls Plan with input that breaks its strict schema: $: required property 'days'"
        )
        assert (await ask(served, request(tools=[LOOSE]))).status == 400
