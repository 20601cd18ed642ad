"""Structured output: in strict mode a scripted reply must satisfy the schema the request asked for."""

from typing import Any

import msgspec

from coterie.scenarios.server.api.call import Call
from coterie.scenarios.server.api.compose import Composed
from coterie.scenarios.server.errors import invalid_request
from coterie.scenarios.server.rules.schema import violations


def check_reply(call: Call, composed: Composed, name: str) -> None:
    """Raise a 400 that names the reply of the script, if it breaks `output_config.format` or a strict tool's schema.

    The real model cannot break them, so the script is at fault. A reply that was cut short is exempt, as in the API.
    """
    if composed.stop_reason in ("max_tokens", "refusal", "model_context_window_exceeded"):
        return
    schema = _format_schema(call)
    text = "".join(block["text"] for block in composed.content if block["type"] == "text")
    if schema is not None and composed.stop_reason != "tool_use":
        _check(_parsed(text, name), schema, f"script reply {name} does not satisfy output_config.format")
    custom = [tool for tool in call.tools if tool.get("type") in (None, "custom")]
    strict = {tool["name"]: tool["input_schema"] for tool in custom if tool.get("strict") is True}
    for block in composed.content:
        if block["type"] == "tool_use" and block["name"] in strict:
            what = f"script reply {name} calls {block['name']} with input that breaks its strict schema"
            _check(block["input"], strict[block["name"]], what)


def _format_schema(call: Call) -> dict[str, Any] | None:
    config = call.params.get("output_config") or {}
    wanted = config.get("format") or call.params.get("output_format") or {}
    schema = wanted.get("schema")
    return schema if isinstance(schema, dict) else None


def _parsed(text: str, name: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise invalid_request(f"script reply {name} is not the JSON that output_config.format asks for: {exc}") from exc


def _check(value: Any, schema: dict[str, Any], what: str) -> None:
    if found := violations(value, schema):
        raise invalid_request(f"{what}: {found[0]}")
