"""Parses a script: a YAML file with the replies that the server sends to each agent instead of a model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from coterie.scenarios.api_server.request.api_request import Block
from coterie.scenarios.api_server.script.http_faults import HttpFault
from coterie.scenarios.api_server.script.located_yaml import LineInvalid, YamlNode, known_names_hint, read_yaml
from coterie.scenarios.api_server.script.scripted_reply import ReplyConditions, ScriptedReply, TextPattern
from coterie.scenarios.api_server.script.text_template import check_template

DEFAULT = "default"
"""Key of the replies for agents without a list of their own."""

STOP_REASONS = (
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
    "compaction",
)
REFUSAL_CATEGORIES = ("cyber", "bio", "frontier_llm", "reasoning_extraction", "general_harms")

_CONTENT_KEYS = ("text", "thinking", "tools", "content")

_TOOLS = "a list of tool calls, such as `- Read: {path: a}`"
_BLOCK_FIELDS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "thinking": {"thinking": str},
    "redacted_thinking": {"data": str},
    "tool_use": {"name": str, "input": dict},
}
"""Required fields of a block that the script writes in the form of the API (with `type`), by block type."""
REPLY_KEYS = (
    *_CONTENT_KEYS,
    *("delay", "token_delay", "asked", "until", "signal", "stop", "refusal", "purpose", "times", "fault", "when"),
)


@attrs.define(eq=False)
class ScriptInvalid(Exception):
    """The script is invalid or cannot be read; the user must correct it."""

    source: str
    line: int | None
    """Line of the error in the script; None if the file could not be read."""
    reason: str
    """One line that states the problem, and the correction if it is known."""

    def __str__(self) -> str:
        where = self.source if self.line is None else f"{self.source}, line {self.line}"
        return f"{where}: {self.reason}"


@attrs.frozen(kw_only=True)
class Script:
    """A parsed script: the replies of all agents, in the order of the file."""

    source: str
    """Name of the script file, for error messages."""
    replies: Mapping[str, tuple[ScriptedReply, ...]]
    """Replies by agent name; agents without a list of their own use the key `default`."""


def load_script(path: Path) -> Script:
    """Load the script at *path*. Raises `ScriptInvalid` if the script is invalid or cannot be read."""
    try:
        content = path.read_bytes()
    except OSError as exc:
        raise ScriptInvalid(str(path), None, f"the script cannot be read: {exc.strerror}; correct the path") from exc
    try:
        return parse_script(content.decode(), str(path))
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        raise ScriptInvalid(str(path), line, f"the script is not UTF-8: {exc.reason}; convert the file") from exc


def parse_script(text: str, source: str) -> Script:
    """Parse the *text* of a script; *source* names the script in errors. Raises `ScriptInvalid`."""
    try:
        return Script(source=source, replies=parse_replies(read_yaml(text, "the script")))
    except LineInvalid as exc:
        raise ScriptInvalid(source, exc.line, exc.reason) from exc


def parse_replies(root: YamlNode | None) -> dict[str, tuple[ScriptedReply, ...]]:
    """Parse the replies of all agents from a YAML mapping, such as a part of a scenario file. Raises `LineInvalid`."""
    expected = "a mapping of agents to lists of replies, such as `default: [{text: hello}]`"
    if root is None:
        raise LineInvalid(1, f"the script is empty; expected {expected}")
    return {agent: _agent_replies(node) for agent, node in root.fields(expected).items()}


def _agent_replies(node: YamlNode) -> tuple[ScriptedReply, ...]:
    replies = tuple(_reply(item) for item in node.items("a list of replies"))
    endless: dict[str, ScriptedReply] = {}
    for reply in replies:
        if reply.when is not None:
            continue
        if last := endless.get(reply.purpose):
            reason = f"{reply.name} is never used: {last.name} on line {last.line} serves all turns"
            raise LineInvalid(reply.line, reason)
        if reply.times is None:
            endless[reply.purpose] = reply
    return replies


def _reply(node: YamlNode) -> ScriptedReply:
    if node.is_scalar():
        return ScriptedReply(name=node.name, line=node.line, content=(_text_block(node),))
    fields = node.known_fields(REPLY_KEYS, "text or a mapping with text, tools or content")
    when = _when(fields["when"]) if "when" in fields else None
    content = _content(node, fields, when.groups if when else None)
    stop = _stop(fields.get("stop"), content)
    return ScriptedReply(
        name=node.name,
        line=node.line,
        content=content,
        stop=stop,
        refusal=_refusal(fields["refusal"], stop) if "refusal" in fields else None,
        delay=fields["delay"].seconds() if "delay" in fields else 0.0,
        token_delay=fields["token_delay"].seconds() if "token_delay" in fields else 0.0,
        asked=_names(fields.get("asked")),
        until=_names(fields.get("until")),
        signals=_names(fields.get("signal")),
        fault=_fault(fields["fault"]) if "fault" in fields else None,
        when=when,
        purpose=_purpose(fields),
        times=fields["times"].times() if "times" in fields else (1 if when is None else None),
    )


def _stop(node: YamlNode | None, content: tuple[Block, ...]) -> str:
    if node is None:
        return "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"
    return _one_of(node, STOP_REASONS)


def _one_of(node: YamlNode, known: tuple[str, ...]) -> str:
    word = node.text()
    if word not in known:
        raise node.refuse(f"unknown {node.name} {word!r}; {known_names_hint(word, known)}")
    return word


def _refusal(node: YamlNode, stop: str) -> dict[str, str | None]:
    fields = node.known_fields(("category", "explanation"))
    if stop != "refusal":
        raise node.refuse("refusal can be used only with `stop: refusal`; add this stop, or remove refusal")
    category, explanation = fields.get("category"), fields.get("explanation")
    return {
        "category": None if category is None or category.value is None else _one_of(category, REFUSAL_CATEGORIES),
        "explanation": None if explanation is None else explanation.text(),
    }


def _names(node: YamlNode | None) -> tuple[str, ...]:
    if node is None:
        return ()
    if node.is_scalar():
        return (node.text(),)
    return tuple(item.text("a name") for item in node.items("a name or a list of names"))


def _fault(node: YamlNode) -> HttpFault:
    try:
        return HttpFault.from_mapping(node.plain())
    except ValueError as exc:
        raise node.refuse(str(exc)) from exc


def _purpose(fields: dict[str, YamlNode]) -> str:
    inner = fields["when"].fields().get("purpose") if "when" in fields else None
    outer = fields.get("purpose")
    if inner and outer and inner.text() != outer.text():
        raise inner.refuse(f"the reply has the purpose {outer.text()!r} already; give it once")
    given = inner or outer
    return given.text() if given else "turn"


def _when(node: YamlNode) -> ReplyConditions:
    fields = node.known_fields(
        ("last_user_text", "last_tool_result", "heard", "unheard", "tool", "model", "purpose", "turn"),
        "conditions, such as `last_user_text: fix the bug`",
    )
    return ReplyConditions(
        last_user_text=_pattern(fields.get("last_user_text")),
        last_tool_result=_pattern(fields.get("last_tool_result")),
        model=_pattern(fields.get("model")),
        tool=fields["tool"].text() if "tool" in fields else None,
        turn=fields["turn"].count() if "turn" in fields else None,
        heard=_patterns(fields.get("heard")),
        unheard=_patterns(fields.get("unheard")),
    )


def _patterns(node: YamlNode | None) -> tuple[TextPattern, ...]:
    nodes = _one_or_more(node, "a text or /regular expression/, or a list of them")
    return tuple(pattern for each in nodes if (pattern := _pattern(each)))


def _pattern(node: YamlNode | None) -> TextPattern | None:
    if node is None:
        return None
    try:
        return TextPattern.parse(node.text("text or a /regular expression/"))
    except ValueError as exc:
        raise node.refuse(str(exc)) from exc


def _content(node: YamlNode, fields: dict[str, YamlNode], groups: int | None) -> tuple[Block, ...]:
    """Parse the blocks of the reply *node*: `content` in its own order, or else thinking, text, tool calls.

    *groups* is the number of groups in the regular expression of the reply's `when`, to check `{{match.N}}`; None
    without a regular expression. Raises `LineInvalid`.
    """
    given = [key for key in _CONTENT_KEYS if key in fields]
    if not given and "stop" not in fields:
        raise node.refuse(f"{node.name} is empty; add text, thinking, tools or content, or a stop")
    if "content" in fields:
        if given != ["content"]:
            raise node.refuse(f"{node.name} has content and {given[0]}; move {given[0]} into content")
        return tuple(_block(item, groups) for item in fields["content"].items("a list of blocks"))
    thoughts = _one_or_more(fields.get("thinking"), "text or a list of texts")
    return (
        *({"type": "thinking", "thinking": _template(item, groups)} for item in thoughts),
        *([_text_block(fields["text"], groups)] if "text" in fields else []),
        *(_tool(item, groups) for item in (fields["tools"].items(_TOOLS) if "tools" in fields else ())),
    )


def _one_or_more(node: YamlNode | None, expected: str) -> tuple[YamlNode, ...]:
    if node is None:
        return ()
    return (node,) if node.is_scalar() else node.items(expected)


def _text_block(node: YamlNode, groups: int | None = None) -> Block:
    """Return a text block. Its text may contain slots such as `{{agent}}`; invalid slots raise `LineInvalid`."""
    return {"type": "text", "text": _template(node, groups)}


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
        raise given.refuse(f"the input of tool {name} must be a mapping, such as `{{path: a}}`")
    return {
        "type": "tool_use",
        **({"id": id.text()} if id else {}),
        "name": name,
        "input": (_json(given, groups) if given else None) or {},
    }


def _block(node: YamlNode, groups: int | None) -> Block:
    if node.is_scalar():
        return _text_block(node, groups)
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
            raise node.refuse(f"a {kind} block needs {expected} as its {key}; add or correct this key")
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
