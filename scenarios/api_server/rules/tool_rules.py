"""Rules over `tools` and `tool_choice`."""

import re

from coterie.scenarios.api_server.request.api_request import ApiRequest, Block
from coterie.scenarios.api_server.request.errors import invalid_request
from coterie.scenarios.api_server.rules.block_rules import unknown_tag
from coterie.scenarios.api_server.rules.schema import check_schema

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
BUILT_IN = re.compile(r"[a-z][a-z0-9_]*_20\d{6}|mcp_toolset|tool_search_tool_(bm25|regex)")
"""Type names of tools whose schema the API knows; most end with the date of their version."""

CHOICES = ("auto", "any", "tool", "none")
FORCED = ("any", "tool")


def tools_are_well_formed(call: ApiRequest) -> None:
    """Check that custom tools have a name and an object schema, and strict ones only supported keywords."""
    for index, tool in enumerate(call.tools):
        kind = tool.get("type")
        if kind is None or kind == "custom":
            _custom_tool_is_well_formed(tool, f"tools.{index}.custom")
        elif not isinstance(kind, str) or not BUILT_IN.fullmatch(kind):
            raise unknown_tag(f"tools.{index}", kind, ("custom", "a versioned tool type"))


def tool_names_are_unique(call: ApiRequest) -> None:
    """Check that tool names are unique; toolsets have no name."""
    names = [tool["name"] for tool in call.tools if isinstance(tool.get("name"), str)]
    if len(names) != len(set(names)):
        raise invalid_request("tools: Tool names must be unique.")


def tool_choice_is_possible(call: ApiRequest) -> None:
    """Check that the choice has a known type, names a tool of this request and is supported by the model."""
    choice = call.params.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type")
    if kind not in CHOICES:
        raise unknown_tag("tool_choice", kind, CHOICES)
    if kind in FORCED and "forced_tool_choice" in call.model.refuses:
        raise invalid_request('tool_choice: type "tool" and "any" are not supported for this model.')
    if not call.tools:
        raise invalid_request("tool_choice may only be specified while providing tools.")
    if kind == "tool":
        name = choice.get("name")
        if not isinstance(name, str):
            raise invalid_request("tool_choice.tool.name: Field required")
        if all(tool.get("name") != name for tool in call.tools):
            raise invalid_request(f"Tool '{name}' not found in provided tools")


def _custom_tool_is_well_formed(tool: Block, path: str) -> None:
    name, schema = tool.get("name"), tool.get("input_schema")
    if not isinstance(name, str):
        raise invalid_request(f"{path}.name: Field required")
    if not NAME.fullmatch(name):
        raise invalid_request(f"{path}.name: String should match pattern '^{NAME.pattern}$'")
    if schema is None:
        raise invalid_request(f"{path}.input_schema: Field required")
    if not isinstance(schema, dict):
        raise invalid_request(f"{path}.input_schema: Input should be a valid dictionary")
    if "type" not in schema:
        raise invalid_request(f"{path}.input_schema.type: Field required")
    if schema["type"] != "object":
        raise invalid_request(f"{path}.input_schema.type: Input should be 'object'")
    if tool.get("strict") is True:
        check_schema(schema, f"{path}.input_schema")
