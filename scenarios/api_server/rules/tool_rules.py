"""Rules for `tools`, `tool_choice`, tool calls and tool results.

The message after a tool call must contain exactly one result for this call.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

import attrs

from coterie.scenarios.api_server.request.api_request import ApiRequest, Block, RequestMessage
from coterie.scenarios.api_server.request.errors import invalid_request
from coterie.scenarios.api_server.rules.block_rules import unknown_tag
from coterie.scenarios.api_server.rules.schema import check_schema

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
BUILT_IN = re.compile(r"[a-z][a-z0-9_]*_20\d{6}|mcp_toolset|tool_search_tool_(bm25|regex)")
"""Type names of the API's built-in tools, which need no schema; most end with the date of their version."""

CHOICES = ("auto", "any", "tool", "none")
FORCED = ("any", "tool")


def tools_are_well_formed(call: ApiRequest) -> None:
    """Raise `ApiError` for an unknown tool type, invalid name or schema, or unsupported keywords in a strict tool."""
    for index, tool in enumerate(call.tools):
        kind = tool.get("type")
        if kind is None or kind == "custom":
            _custom_tool_is_well_formed(tool, f"tools.{index}.custom")
        elif not isinstance(kind, str) or not BUILT_IN.fullmatch(kind):
            raise unknown_tag(f"tools.{index}", kind, ("custom", "a versioned tool type"))


def tool_names_are_unique(call: ApiRequest) -> None:
    """Raise `ApiError` if two tools have the same name; tools without a name (toolsets) are skipped."""
    names = [tool["name"] for tool in call.tools if isinstance(tool.get("name"), str)]
    if len(names) != len(set(names)):
        raise invalid_request("tools: Tool names must be unique.")


def tool_choice_is_possible(call: ApiRequest) -> None:
    """Raise `ApiError` if `tool_choice` has an unknown type or tool, or the model does not support it."""
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


@attrs.frozen(kw_only=True)
class MessageRun:
    """Consecutive messages of one role, which the API reads as one message."""

    role: str
    messages: tuple[tuple[int, RequestMessage], ...]
    """Messages of the run, each with its index in the request."""

    def blocks(self, *types: str) -> Iterator[tuple[str, Block]]:
        """Yield the blocks whose type is one of *types*, each with its path in the request."""
        for number, message in self.messages:
            for index, block in enumerate(message.content):
                if block["type"] in types:
                    yield f"messages.{number}.content.{index}", block

    def tool_use_ids(self) -> list[str]:
        """Return the ids of the tool calls of all messages, in order."""
        return [block["id"] for _, message in self.messages for block in message.content if block["type"] == "tool_use"]

    def leading_results(self) -> list[str]:
        """Return the tool call ids of the results before any other block; `cache_edits` blocks are skipped."""
        blocks = (block for _, message in self.messages for block in message.content)
        spoken = (block for block in blocks if block["type"] != "cache_edits")
        return [
            block["tool_use_id"] for block in itertools.takewhile(lambda block: block["type"] == "tool_result", spoken)
        ]


def merged_runs(messages: Sequence[RequestMessage]) -> list[MessageRun]:
    """Group consecutive *messages* of the same role, as the API merges them; `system` messages are left out."""
    spoken = [(number, message) for number, message in enumerate(messages) if message.role != "system"]
    groups = itertools.groupby(spoken, key=lambda item: item[1].role)
    return [MessageRun(role=role, messages=tuple(group)) for role, group in groups]


def every_tool_use_has_its_result(call: ApiRequest) -> None:
    """Raise `ApiError` if tool call ids repeat, or the next user message does not start with one result for each."""
    if call.block_types.isdisjoint(("tool_use", "tool_result")):
        return
    _tool_blocks_have_their_role(call)
    runs = merged_runs(call.messages)
    seen: set[str] = set()
    for path, block in (each for run in runs for each in run.blocks("tool_use")):
        if block["id"] in seen:
            raise invalid_request(f"{path}: `tool_use` ids must be unique: {block['id']}")
        seen.add(block["id"])
    for before, run in itertools.pairwise([None, *runs]):
        if run is not None and run.role == "user":
            _results_are_expected(run, set(before.tool_use_ids()) if before else set())
    for run, after in itertools.pairwise([*runs, None]):
        if run is not None and run.role == "assistant":
            _uses_are_answered(run, set(after.leading_results()) if after else set())


def _tool_blocks_have_their_role(call: ApiRequest) -> None:
    owners = {"tool_use": "assistant", "tool_result": "user"}
    for number, message in enumerate(call.messages):
        for index, block in enumerate(message.content):
            owner = owners.get(block["type"], message.role)
            if owner != message.role:
                raise invalid_request(
                    f"messages.{number}.content.{index}: `{block['type']}` blocks can only be in `{owner}` messages"
                )


def _results_are_expected(run: MessageRun, asked: AbstractSet[str]) -> None:
    left = set(asked)
    for path, block in run.blocks("tool_result"):
        name = block["tool_use_id"]
        if name not in asked:
            raise invalid_request(
                f"{path}: unexpected `tool_use_id` found in `tool_result` blocks: {name}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if name not in left:
            raise invalid_request(
                f"{path}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {name}"
            )
        left.remove(name)


def _uses_are_answered(run: MessageRun, answered: AbstractSet[str]) -> None:
    missing = [name for name in run.tool_use_ids() if name not in answered]
    if missing:
        number = run.messages[-1][0]
        raise invalid_request(
            f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. "
            "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
        )
