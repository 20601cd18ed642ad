"""Structured output over HTTP: a scripted reply follows the schema, or the error names the violation."""

from typing import Any

import msgspec
import pytest

from tests.embedded_server import open_served
from tests.scenarios.api_server.api.api_client import ask, open_strict_sdk, request
from tests.scenarios.api_server.request_samples import tool

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
FORMAT: dict[str, Any] = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
STRICT = tool("Plan", strict=True, input_schema=SCHEMA)
GOOD = '{"city": "Oslo", "days": [1, 2]}'


def script_replying(said: str, **fields: Any) -> str:
    return msgspec.json.encode({"default": [{"text": said, **fields}]}).decode()


def calling(name: str, **arguments: Any) -> str:
    return msgspec.json.encode({"default": [{"tools": [{name: arguments}]}]}).decode()


async def test_a_reply_that_keeps_to_the_schema_goes_out_as_it_is() -> None:
    async with open_served(script_replying(GOOD)) as served:
        async with open_strict_sdk(served) as client:
            params: dict[str, Any] = request(**FORMAT)
            message = await client.messages.create(**params)
        assert message.content[0].type == "text"
        assert message.content[0].text == GOOD


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


async def test_output_format_parameter_is_checked_too() -> None:
    body = request(output_format=FORMAT["output_config"]["format"])
    async with open_served(script_replying("Oslo")) as served:
        answer = await ask(served, body, anthropic_version="2023-06-01")
        assert "script reply default[1] is not the JSON" in answer.error
        assert (await ask(served, body)).error.startswith("output_format: Extra inputs are not permitted")


@pytest.mark.parametrize(
    ("script", "fields"),
    [
        (script_replying("no", stop="refusal"), {}),
        (script_replying(GOOD), {"max_tokens": 2}),
        (calling("Read", path="a"), {"tools": [tool("Read")]}),
    ],
    ids=["refused", "cut", "a tool call first"],
)
async def test_a_reply_that_is_no_answer_is_exempt(script: str, fields: dict[str, Any]) -> None:
    async with open_served(script) as served:
        assert (await ask(served, request(**{**FORMAT, **fields}))).status == 200


async def test_a_strict_tool_is_called_by_its_schema() -> None:
    async with open_served(calling("Plan", city="Oslo", days=[1])) as served:
        assert (await ask(served, request(tools=[STRICT]))).json["stop_reason"] == "tool_use"
    async with open_served(calling("Plan", city="Oslo")) as served:
        answer = await ask(served, request(tools=[STRICT]))
        assert answer.error.startswith(
            "script reply default[1] calls Plan with input that breaks its strict schema: $: required property 'days'"
        )
        assert (await ask(served, request(tools=[tool("Plan", input_schema=SCHEMA)]))).status == 400


async def test_a_tool_that_is_not_strict_is_called_as_the_script_says() -> None:
    async with open_served(calling("Plan", nonsense=1)) as served:
        assert (await ask(served, request(tools=[tool("Plan", input_schema=SCHEMA)]))).status == 200


async def test_a_built_in_tool_has_no_schema_to_break() -> None:
    tools = [{"type": "bash_20250124", "name": "bash", "strict": True}, {"type": "mcp_toolset", "strict": True}]
    async with open_served(calling("bash", command="ls")) as served:
        assert (await ask(served, request(tools=tools))).status == 200


@pytest.mark.parametrize("script", [script_replying("Oslo"), calling("Plan", nonsense=1)])
async def test_a_lenient_server_lets_any_reply_pass(script: str) -> None:
    async with open_served(script, is_strict=False) as served:
        assert (await ask(served, request(**FORMAT, tools=[STRICT]))).status == 200
