"""Content blocks of a scripted reply, parsed with their template slots."""

from typing import Any

from coterie.scenarios.api_server.request.api_request import Block
from coterie.scenarios.api_server.script.located_yaml import YamlNode
from coterie.scenarios.api_server.script.text_template import check_template

CONTENT_KEYS = ("text", "thinking", "tools", "content")
"""Keys of a reply that this module parses."""

_TOOLS = "a list of tool calls, such as `- Read: {path: a}`"
_BLOCK_FIELDS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "thinking": {"thinking": str},
    "redacted_thinking": {"data": str},
    "tool_use": {"name": str, "input": dict},
}
"""Required fields of a literal block, by type."""


def parse_content(node: YamlNode, fields: dict[str, YamlNode], groups: int | None) -> tuple[Block, ...]:
    """Parse the blocks of the reply *node* in the order they are sent: thinking, text, tool calls.

    *groups* is the number of groups in the regular expression of its rule, for `{{match.N}}`. Raises `LineInvalid`.
    """
    given = [key for key in CONTENT_KEYS if key in fields]
    if not given and "stop" not in fields:
        raise node.refuse(f"{node.name} is empty; add text, thinking, tools or content, or a stop")
    if "content" in fields:
        if given != ["content"]:
            raise node.refuse(f"{node.name} has content and {given[0]}; content must contain all blocks")
        return tuple(_block(item, groups) for item in fields["content"].items("a list of blocks"))
    return (
        *(_thinking_block(item, groups) for item in _one_or_more(fields.get("thinking"))),
        *([text_block(fields["text"], groups)] if "text" in fields else []),
        *(_tool(item, groups) for item in (fields["tools"].items(_TOOLS) if "tools" in fields else ())),
    )


def _one_or_more(node: YamlNode | None) -> tuple[YamlNode, ...]:
    if node is None:
        return ()
    return (node,) if node.is_scalar() else node.items("text or a list of texts")


def text_block(node: YamlNode, groups: int | None = None) -> Block:
    """Return a text block whose text may contain slots. Raises `LineInvalid`."""
    return {"type": "text", "text": _template(node, groups)}


def _thinking_block(node: YamlNode, groups: int | None) -> Block:
    return {"type": "thinking", "thinking": _template(node, groups)}


def _tool(node: YamlNode, groups: int | None) -> Block:
    fields = node.fields("one tool call, such as `Read: {path: a}`")
    if "name" in fields and fields["name"].is_scalar():
        fields = node.known_fields(("name", "input", "id"))
        return _tool_block(fields["name"].text(), fields.get("input"), fields.get("id"), groups)
    if len(fields) != 1:
        names = ", ".join(fields)
        raise node.refuse(f"{node.name} names {len(fields)} tools ({names}); write each call as a separate item")
    ((name, given),) = fields.items()
    return _tool_block(name, given, None, groups)


def _tool_block(name: str, given: YamlNode | None, id: YamlNode | None, groups: int | None) -> Block:  # noqa: A002 - name in the API
    if given is not None and not isinstance(given.value, dict | None):
        raise given.refuse(f"the input of {name} must be a mapping")
    return {
        "type": "tool_use",
        **({"id": id.text()} if id else {}),
        "name": name,
        "input": (_json(given, groups) if given else None) or {},
    }


def _block(node: YamlNode, groups: int | None) -> Block:
    if node.is_scalar():
        return text_block(node, groups)
    fields = node.fields("text or a block")
    if "type" in fields:
        return _literal(node, fields["type"], groups)
    kinds = ("text", "thinking", "redacted_thinking", "tool")
    fields = node.known_fields((*kinds, "input", "id", "type"), "a block")
    given = [key for key in fields if key in kinds]
    if len(given) != 1 or (given != ["tool"] and len(fields) > 1):
        raise node.refuse(
            f"{node.name} must be one block: {{text: ..}}, {{thinking: ..}}, "
            "{redacted_thinking: ..} or {tool: .., input: {..}}"
        )
    value = fields[given[0]]
    if given == ["tool"]:
        return _tool_block(value.text(), fields.get("input"), fields.get("id"), groups)
    if given == ["redacted_thinking"]:
        return {"type": "redacted_thinking", "data": _template(value, groups)}
    return {"type": given[0], given[0]: _template(value, groups)}


def _literal(node: YamlNode, type: YamlNode, groups: int | None) -> Block:  # noqa: A002 - name in the API
    kind = type.text("a block type")
    block: Block = {**_json(node, groups), "type": kind}
    for key, value_type in _BLOCK_FIELDS.get(kind, {}).items():
        if not isinstance(block.get(key), value_type):
            expected = "a mapping" if value_type is dict else "text"
            raise node.refuse(f"a {kind} block needs {expected} as its {key}")
    return block


def _json(node: YamlNode, groups: int | None) -> Any:
    if isinstance(node.value, dict):
        return {key: _json(item, groups) for key, item in node.value.items()}
    if isinstance(node.value, tuple):
        return [_json(item, groups) for item in node.value]
    return _template(node, groups) if isinstance(node.value, str) and node.value else node.value


def _template(node: YamlNode, groups: int | None) -> str:
    text = node.text()
    try:
        check_template(text, groups=groups)
    except ValueError as exc:
        raise node.refuse(str(exc)) from exc
    return text
