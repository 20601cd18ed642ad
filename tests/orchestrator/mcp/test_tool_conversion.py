"""Tools that can be offered to a model, and the text of results."""

from typing import Any

import mcp_types
import msgspec
import pytest

from coterie.agents.mcp.messages import ToolImage
from coterie.orchestrator.mcp.host.tool_conversion import LARGEST_LIST, to_content, usable_tools


def tool(name: str, schema: dict[str, Any] | None = None, description: str = "d") -> mcp_types.Tool:
    return mcp_types.Tool(name=name, description=description, input_schema=schema or {"type": "object"})


def test_tools_are_sorted_and_keep_their_schemas() -> None:
    schema = {"type": "object", "properties": {"z": {"type": "string"}, "a": {}}, "x-own": 1}
    listed = usable_tools("s", [tool("b"), tool("a", schema)], "  Use a first. ")
    assert [each.name for each in listed.tools] == ["mcp__s__a", "mcp__s__b"]
    assert msgspec.json.decode(listed.tools[0].schema) == schema
    assert list(msgspec.json.decode(listed.tools[0].schema)) == list(schema)
    assert listed.instructions == "Use a first."


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string"}, "is not of type object"),
        ({"type": "object", "anyOf": []}, "has anyOf at the top"),
        ({"type": "object", "properties": {"a": {"type": "strange"}}}, "is invalid"),
        ({"type": "object", "description": "x" * 40_000}, "over 32,000"),
    ],
)
def test_tool_refused_by_the_api_is_left_out_with_the_reason(schema: dict[str, Any], words: str) -> None:
    listed = usable_tools("s", [tool("bad", schema), tool("good")])
    assert [each.tool for each in listed.tools] == ["good"]
    [reason] = listed.left_out
    assert reason.startswith("bad: ")
    assert words in reason


def test_duplicate_names_and_large_lists_are_cut() -> None:
    assert usable_tools("s", [tool("a b"), tool("a_b")]).left_out == ("a_b: another tool has the name mcp__s__a_b too",)
    many = [tool(f"t{number}", description="x" * 2_000) for number in range(200)]
    listed = usable_tools("s", many)
    assert 0 < len(listed.tools) < 200
    assert sum(len(each.description) for each in listed.tools) <= LARGEST_LIST
    assert len(listed.tools) + len(listed.left_out) == 200


def test_every_content_type_is_shown_or_named() -> None:
    result = mcp_types.CallToolResult(
        content=[
            mcp_types.TextContent(type="text", text="hello"),
            mcp_types.ImageContent(type="image", mime_type="image/png", data="AA=="),
            mcp_types.AudioContent(type="audio", mime_type="audio/wav", data="AA=="),
            mcp_types.ResourceLink(type="resource_link", name="log", uri="file:///log"),
            mcp_types.EmbeddedResource(
                type="resource", resource=mcp_types.TextResourceContents(uri="file:///a", text="inside")
            ),
            mcp_types.EmbeddedResource(
                type="resource",
                resource=mcp_types.BlobResourceContents(uri="file:///b", mime_type="image/gif", blob="BB=="),
            ),
            mcp_types.EmbeddedResource(
                type="resource", resource=mcp_types.BlobResourceContents(uri="file:///c", blob="CC==")
            ),
        ],
        is_error=True,
    )
    said = to_content(result)
    assert said.is_error
    assert said.text.splitlines() == [
        "hello",
        "[audio of type audio/wav, which cannot be shown]",
        "[log, file:///log]",
        "[file:///a]",
        "inside",
        "[file:///c: bytes, which cannot be shown]",
    ]
    pictures = [ToolImage(media_type="image/png", data="AA=="), ToolImage(media_type="image/gif", data="BB==")]
    assert said.pictures == pictures

    # Structured content becomes text only if there is no other.
    assert to_content(mcp_types.CallToolResult(content=[], structured_content={"a": 1})).text == '{"a":1}'
    both = mcp_types.CallToolResult(
        content=[mcp_types.TextContent(type="text", text="a is 1")], structured_content={"a": 1}
    )
    assert to_content(both).text == "a is 1"
