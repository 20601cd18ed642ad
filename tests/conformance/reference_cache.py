"""Prompt caching as documented: a slow second implementation to compare the bills of the embedded server with.

It shares no code with the server, and is naive on purpose: a prefix is a tuple of strings, the cache is a list that is
read from one end to the other, and every number is written out here again.
"""

import json
import math
from typing import Any

import attrs

from tests.conformance.cases import Bill

MINIMUMS = {
    "claude-opus-5-5": 512,
    "claude-opus-5": 512,
    "claude-sonnet-5": 1_024,
    "claude-sonnet-4-5": 1_024,
    "claude-opus-4-7": 2_048,
    "claude-haiku-4-5": 4_096,
}
"""Minimum tokens of a cached prefix; shorter ones are silently not cached."""
FORGETFUL = ("claude-sonnet-4-5", "claude-haiku-4-5")
"""Models that drop the thinking of earlier turns."""
ALWAYS_THINKING = ("claude-opus-5-5",)
MEDIUM_EFFORT = ("claude-opus-5-5",)
SECONDS = {"5m": 300.0, "1h": 3_600.0}
POSITIONS = 20
"""Number of blocks that a breakpoint looks back, including itself."""


@attrs.frozen(kw_only=True)
class Position:
    """One block of a prompt, with the prefix up to its end."""

    prefix: tuple[str, ...]
    tokens: int
    step: int
    """Position for the lookback: a run of tool calls, or of their results, is one step."""
    ttl: str | None
    is_markable: bool


@attrs.define(eq=False)
class Entry:
    """A prefix that was written."""

    prefix: tuple[str, ...]
    life: float
    expiry: float


@attrs.frozen(kw_only=True)
class Begun:
    """A request whose response has not begun: its entries cannot be read yet."""

    bill: Bill
    started: float
    writes: tuple[tuple[tuple[str, ...], float], ...]


@attrs.define(eq=False)
class ReferenceCache:
    """All entries of all keys and models."""

    entries: list[Entry] = attrs.field(factory=list)

    def begin(self, body: bytes, key: str, now: float) -> Begun:
        """Return the bill of a request that starts *now*, with its cache reads."""
        request = json.loads(body)
        positions = lay_out(request, key)
        minimum = MINIMUMS[request["model"]]
        marked = [(at, ttl) for at, ttl in _breakpoints(request, positions) if positions[at].tokens >= minimum]
        hits = [hit for at, _ in marked if (hit := self._look_back(positions, at, now)) is not None]
        a = positions[max(hits)].tokens if hits else 0
        b = max([a, *(positions[at].tokens for at, ttl in marked if ttl == "1h")])
        c = positions[marked[-1][0]].tokens if marked else 0
        return Begun(
            bill=Bill(read=a, write_1h=b - a, write_5m=c - b, uncached=positions[-1].tokens - c),
            started=now,
            writes=tuple((positions[at].prefix, SECONDS[ttl]) for at, ttl in marked),
        )

    def publish(self, begun: Begun) -> None:
        """Publish the entries of a request whose response begins; their lifetime counts from its start."""
        for prefix, life in begun.writes:
            alive = [e for e in self.entries if e.prefix == prefix and e.expiry >= begun.started]
            for entry in alive:
                entry.life = max(entry.life, life)
                entry.expiry = max(entry.expiry, begun.started + life)
            if not alive:
                self.entries.append(Entry(prefix, life, begun.started + life))

    def _look_back(self, positions: list[Position], at: int, now: float) -> int | None:
        steps = {positions[at].step}
        for index in range(at, -1, -1):
            steps.add(positions[index].step)
            if len(steps) > POSITIONS:
                return None
            found = [e for e in self.entries if e.prefix == positions[index].prefix and e.expiry >= now]
            for entry in found:
                entry.expiry = max(entry.expiry, now + entry.life)
            if found:
                return index
        return None


def lay_out(request: dict[str, Any], key: str) -> list[Position]:
    """Return the positions of tools, system and messages in that order, with the parameters that invalidate them."""
    output = request.get("output_config", {})
    messages = _remembered(request)
    blocks = [block for message in messages for block in _content(message["content"])]
    parts = [*blocks, *(part for block in blocks if block["type"] == "tool_result" for part in _result(block))]
    tools = [tool for tool in request.get("tools", []) if not tool.get("defer_loading")]
    web = [tool for tool in tools if tool.get("type", "").startswith("web_")]

    prompt = _Prompt(prefix=(f"{key} {request['model']}",))
    prompt.add("tools", [tool for tool in tools if tool not in web])
    cites = any(part.get("citations", {}).get("enabled") for part in parts)
    prompt.depend_on(request.get("speed", "standard"), output.get("format"), cites)
    prompt.add("web tools", web)
    prompt.add("system", _content(request.get("system", [])))
    shows = any(part["type"] == "image" for part in parts)
    prompt.depend_on(_tool_choice(request), _thinking(request), _effort(request), shows)
    for message in messages:
        prompt.add(message["role"], _content(message["content"]), is_message=True)
    return prompt.positions


@attrs.define(eq=False)
class _Prompt:
    prefix: tuple[str, ...]
    positions: list[Position] = attrs.field(factory=list)

    def depend_on(self, *settings: Any) -> None:
        self.prefix = (*self.prefix, json.dumps(settings, sort_keys=True))

    def add(self, owner: str, blocks: list[dict[str, Any]], *, is_message: bool = False) -> None:
        before = None
        for number, block in enumerate(blocks):
            start = f"new {owner}" if is_message and number == 0 else owner
            self.prefix = (*self.prefix, f"{start} {_canonical(block)}")
            kind = block.get("type")
            last = self.positions[-1] if self.positions else None
            is_run = kind == before and kind in ("tool_use", "tool_result")
            self.positions.append(
                Position(
                    prefix=self.prefix,
                    tokens=(last.tokens if last else 0) + count_tokens(block),
                    step=(last.step if last else 0) + (not is_run),
                    ttl=_ttl(block.get("cache_control")),
                    is_markable=kind not in ("thinking", "redacted_thinking") and block.get("text") != "",
                )
            )
            before = kind


def _breakpoints(request: dict[str, Any], positions: list[Position]) -> list[tuple[int, str]]:
    """Return explicit breakpoints, and the automatic one on the last eligible block."""
    marked = {at: position.ttl for at, position in enumerate(positions) if position.ttl}
    automatic = _ttl(request.get("cache_control"))
    markable = [at for at, position in enumerate(positions) if position.is_markable]
    if automatic and markable:
        marked[markable[-1]] = automatic
    return sorted(marked.items())


def _ttl(control: dict[str, str] | None) -> str | None:
    return control.get("ttl", "5m") if control else None


def _remembered(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages as the model reads them: some models drop thinking from before the last user message."""
    messages: list[dict[str, Any]] = request["messages"]
    if request["model"] not in FORGETFUL:
        return messages
    spoken = [
        number
        for number, message in enumerate(messages)
        if message["role"] == "user" and any(b["type"] != "tool_result" for b in _content(message["content"]))
    ]
    return [
        {**message, "content": [b for b in _content(message["content"]) if "thinking" not in b["type"]]}
        if number < max(spoken)
        else message
        for number, message in enumerate(messages)
    ]


def _tool_choice(request: dict[str, Any]) -> dict[str, Any]:
    choice = request.get("tool_choice", {"type": "auto"})
    return {"disable_parallel_tool_use": False, **choice}


def _thinking(request: dict[str, Any]) -> dict[str, Any]:
    default = "adaptive" if request["model"] in ALWAYS_THINKING else "disabled"
    setting: dict[str, Any] = request.get("thinking", {"type": default})
    return setting


def _effort(request: dict[str, Any]) -> str:
    default = "medium" if request["model"] in MEDIUM_EFFORT else "high"
    return str(request.get("output_config", {}).get("effort", default))


def _content(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _result(block: dict[str, Any]) -> list[dict[str, Any]]:
    return _content(block.get("content", []))


def _canonical(block: dict[str, Any]) -> str:
    """Encode a block: a string equals one text block, markers do not count, and the order of keys matters."""
    plain = {key: value for key, value in block.items() if key != "cache_control"}
    if plain.get("type") == "tool_result" and "content" in plain:
        plain["content"] = _result(plain)
    return _json(plain)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def count_tokens(block: dict[str, Any]) -> int:
    """Count the tokens of a block by the embedded server's rule: four bytes of text each, three of JSON."""
    match block.get("type"):
        case "text" | "thinking" as name:
            return _text_tokens(block[name])
        case "image":
            return 1_600
        case "document":
            return _text_tokens(block["source"]["data"])
        case "tool_use":
            return 4 + _text_tokens(block["name"]) + _json_tokens(block["input"])
        case "tool_result":
            return 4 + sum(map(count_tokens, _result(block)))
        case _:
            return _json_tokens({key: value for key, value in block.items() if key != "cache_control"})


def _text_tokens(text: str) -> int:
    return max(1, math.ceil(len(text.encode()) / 4))


def _json_tokens(value: Any) -> int:
    return math.ceil(len(_json(value).encode()) / 3)
