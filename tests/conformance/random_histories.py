"""Random histories of requests: conversations that grow, fork and change, and a clock that jumps."""

import json
from collections.abc import Iterator
from typing import Any

import attrs
from hypothesis import strategies as st

Request = dict[str, Any]

THINKING = {"type": "thinking", "thinking": "hm " * 200, "signature": "c2ln"}
LIMIT = 4
PLACES = ((), (-1,), (-1,), (1,), (1, -1), (3, -1), (1, 3, 4, -1), (3, -2, -1), (-20,), (-21, -1))
"""Common choices: the ends of tools, system and first message, and the last blocks."""


@attrs.frozen(kw_only=True)
class RequestVariant:
    places: tuple[int, ...]
    """Indices of the marked blocks among those that can be marked, counted from either end."""
    hours: int
    """Number of markers with a lifetime of an hour: the first ones."""
    is_automatic: bool
    is_plain: bool
    """True if a lone text block is sent as a string, without white space."""
    is_prefilled: bool
    """True if the request ends with thinking of the assistant, which cannot be marked."""

    def to_bytes(self, request: Request) -> bytes:
        """Apply the variant to *request* in place and return its body; markers are only where the API allows them."""
        if self.is_prefilled:
            request["messages"].append({"role": "assistant", "content": [THINKING]})
        self._mark(request)
        if self.is_plain:
            _write_plainly(request)
        return json.dumps(request, separators=(",", ":") if self.is_plain else None).encode()

    def _mark(self, request: Request) -> None:
        blocks = _markable(request)
        last = len(blocks) - 1
        places = sorted({min(place, last) if place >= 0 else max(0, last + 1 + place) for place in self.places})
        for number, place in enumerate(places):
            blocks[place]["cache_control"] = _control(is_hour=number < self.hours)
        if self.is_automatic and (at_end := blocks[-1].get("cache_control")):
            request["cache_control"] = at_end
        elif self.is_automatic and len(places) < LIMIT:
            request["cache_control"] = _control(is_hour=self.hours > len(places))


WRITINGS: st.SearchStrategy[RequestVariant] = st.builds(
    RequestVariant,
    places=st.sampled_from(PLACES) | st.lists(st.integers(-24, 4), max_size=LIMIT).map(tuple),
    hours=st.integers(0, LIMIT + 1),
    is_automatic=st.booleans(),
    is_plain=st.booleans(),
    is_prefilled=st.sampled_from([False, False, False, False, True]),
)


def _markable(request: Request) -> list[dict[str, Any]]:
    tools = [tool for tool in request.get("tools", []) if not tool.get("defer_loading")]
    spoken = [block for message in request["messages"] for block in message["content"]]
    return [
        block
        for block in (*tools, *request.get("system", []), *spoken)
        if block.get("text") != "" and block.get("type") not in ("thinking", "redacted_thinking")
    ]


def _control(*, is_hour: bool) -> dict[str, str]:
    return {"type": "ephemeral", "ttl": "1h"} if is_hour else {"type": "ephemeral"}


def _write_plainly(request: Request) -> None:
    results = [b for message in request["messages"] for b in message["content"] if b["type"] == "tool_result"]
    holders = [(request, "system"), *((holder, "content") for holder in [*results, *request["messages"]])]
    for holder, name in holders:
        blocks = holder.get(name, [])
        if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
            holder[name] = blocks[0]["text"]


Block = dict[str, Any]

TOOLS: tuple[Block, ...] = (
    {"name": "Read", "description": "r" * 1_800, "input_schema": {"type": "object"}},
    {"name": "Bash", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}},
    {"name": "Rare", "input_schema": {"type": "object"}, "defer_loading": True},
    {"type": "web_search_20250305", "name": "web_search"},
)
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
DOCUMENT = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d" * 90}}
CITED = {**DOCUMENT, "citations": {"enabled": True}}
FORMAT = {"type": "json_schema", "schema": {"type": "object", "additionalProperties": False}}
MODELS = (
    "claude-opus-5-5",
    "claude-opus-5",
    "claude-sonnet-5",
    "claude-opus-4-7",
    "claude-haiku-4-5",
    "claude-sonnet-4-5",
)
# By name, so that a failing history is readable.
THOUGHTS: dict[str, list[Block]] = {
    "none": [],
    "said": [{"type": "text", "text": "I see"}],
    "thought": [THINKING],
    "redacted": [{"type": "redacted_thinking", "data": "eA=="}, {"type": "text", "text": "so"}],
    "omitted": [{"type": "thinking", "thinking": "", "signature": "c2ln"}, {"type": "text", "text": ""}],
}
RESULTS: dict[str, str | list[Block]] = {
    "string": "done",
    "block": [{"type": "text", "text": "done"}],
    "long": "r" * 3_000,
    "image": [{"type": "text", "text": "see"}, IMAGE],
    "empty": [],
}
WORDS: dict[str, list[Block]] = {
    **{f"{n} tokens": [{"type": "text", "text": "x" * 4 * n}] for n in (1, 30, 520, 1_100, 4_200)},
    **{f"{n} blocks": [{"type": "text", "text": f"word {i}"} for i in range(n)] for n in (0, 3, 17, 18, 19, 20)},
    "image": [IMAGE, {"type": "text", "text": "look"}],
    "document": [DOCUMENT, {"type": "text", "text": ""}],
    "cited": [CITED],
    "odd": [{"type": "text", "text": '"\\\n\x01é\u2028 </>'}, {"type": "text", "text": ""}],
}
WAITS = (*[0.0] * 14, 1.0, 1.0, 59.0, 240.0, 299.0, 300.0, 301.0, 3_300.0, 3_599.0, 3_600.0, 3_601.0)
"""Seconds between two requests: mostly zero, because otherwise all entries would expire."""
ASIDE = 60.0
"""Seconds by which the clock may move before a response begins."""


@attrs.frozen(kw_only=True)
class Wait:
    """The clock moves."""

    seconds: float


@attrs.frozen(kw_only=True)
class Send:
    """A request starts; unless it is held, its response begins immediately."""

    body: bytes
    key: str
    is_held: bool


@attrs.frozen(kw_only=True)
class Begin:
    """The response to the oldest held request begins."""


Event = Wait | Send | Begin


@attrs.define(eq=False)
class Talk:
    """One conversation and its parameters; it ends with the user's message."""

    key: str = "a"
    tools: tuple[int, ...] = (0, 1)
    system: list[Block] = attrs.field(factory=list)
    messages: list[dict[str, Any]] = attrs.field(factory=list)
    params: dict[str, Any] = attrs.field(factory=lambda: {"model": "claude-opus-5"})

    def request(self) -> dict[str, Any]:
        """Return the request without markers, as separate objects."""
        effort, output_format = self.params.get("effort"), self.params.get("format")
        output = {"effort": effort, "format": output_format}
        request = {
            **{name: value for name, value in self.params.items() if name not in output and value is not None},
            "max_tokens": 16,
            "output_config": {name: value for name, value in output.items() if value is not None},
            "tools": [TOOLS[number] for number in self.tools],
            "system": self.system,
            "messages": self.messages,
        }
        given: dict[str, Any] = apart({name: value for name, value in request.items() if value not in ([], {})})
        return given

    def fork(self, cut: int) -> "Talk":
        """Return the conversation without its last *cut* turns."""
        messages = apart(self.messages)
        while cut and len(messages) > 2:
            messages, cut = messages[: last_reply(messages)], cut - 1
        return attrs.evolve(self, messages=messages, system=apart(self.system), params={**self.params})


@attrs.frozen(kw_only=True)
class Step:
    """Change one of the conversations, let time pass, and send it."""

    number: int
    change: tuple[Any, ...]
    wait: float
    writing: RequestVariant
    is_held: bool


@attrs.define(eq=False)
class History:
    """Executes steps and returns the resulting events."""

    talks: list[Talk] = attrs.field(factory=lambda: [begun()])
    held: int = 0
    aside: float = 0.0
    calls: int = 0

    def events(self, steps: list[Step]) -> Iterator[Event]:
        """Return the events of *steps*; at the end no request is held."""
        for step in steps:
            talk = self.talks[step.number % len(self.talks)]
            self._change(talk, step.change)
            yield from self._wait(step.wait)
            yield Send(body=step.writing.to_bytes(talk.request()), key=talk.key, is_held=step.is_held)
            self.held += step.is_held
        yield from self._begin_all()

    def _wait(self, seconds: float) -> Iterator[Event]:
        self.aside = self.aside + seconds if self.held else 0.0
        if self.aside > ASIDE:
            yield from self._begin_all()
        if seconds:
            yield Wait(seconds=seconds)

    def _begin_all(self) -> Iterator[Event]:
        yield from [Begin()] * self.held
        self.held, self.aside = 0, 0.0

    def _change(self, talk: Talk, change: tuple[Any, ...]) -> None:
        match change:
            case ("grow", thoughts, calls, results, words):
                self._grow(talk, THOUGHTS[thoughts], calls, RESULTS[results], WORDS[words])
            case ("fork", cut):
                self.talks.append(talk.fork(cut))
            case ("split", at):
                split(talk.messages, at % len(talk.messages))
            case ("edit", at):
                blocks = [*talk.system, *(block for message in talk.messages for block in message["content"])]
                edit(blocks[at % len(blocks)])
            case ("set", "key" | "tools" as name, value):
                setattr(talk, name, value)
            case ("set", name, value):
                talk.params[name] = value

    def _grow(self, talk: Talk, thoughts: list[Block], calls: int, results: Any, words: list[Block]) -> None:
        ids = [f"toolu_{self.calls + number}" for number in range(calls)]
        self.calls += calls
        uses = [
            {"type": "tool_use", "id": id_, "name": "Read", "input": {"path": "é/" + id_, "line": 0.5}} for id_ in ids
        ]
        answers = [{"type": "tool_result", "tool_use_id": id_, "content": results} for id_ in ids]
        talk.messages += [
            {"role": "assistant", "content": [*thoughts, *uses] or [text("ok")]},
            {"role": "user", "content": [*answers, *words] or [text("go on")]},
        ]
        talk.messages = apart(talk.messages)


def begun() -> Talk:
    """Return a conversation whose first request is long enough for most models to cache."""
    return Talk(system=[text("s" * 2_400), text("t" * 40)], messages=[{"role": "user", "content": [text("q" * 2_000)]}])


def apart(value: Any) -> Any:
    """Return a copy without shared objects, so that each block can be marked separately."""
    return json.loads(json.dumps(value))


def last_reply(messages: list[dict[str, Any]]) -> int:
    """Return the index of the last assistant message."""
    start = max(number for number, message in enumerate(messages) if message["role"] == "assistant")
    while messages[start - 1]["role"] == "assistant":
        start -= 1
    return start


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def edit(block: Block) -> None:
    """Change *block* slightly, like a client that breaks its own cache."""
    match block["type"]:
        case "text":
            block["text"] += "!"
        case "tool_use":
            block["input"] = dict(reversed(block["input"].items()))
        case "tool_result":
            block["is_error"] = True


def split(messages: list[dict[str, Any]], at: int) -> None:
    """Split a message into two with the same blocks, which is another conversation for the cache."""
    role, content = messages[at]["role"], messages[at]["content"]
    if len(content) > 1:
        messages[at : at + 1] = [{"role": role, "content": content[:1]}, {"role": role, "content": content[1:]}]


_CALLS = st.sampled_from([0, 0, 1, 2, 7, 25])
_GROW = st.tuples(
    st.just("grow"), st.sampled_from([*THOUGHTS]), _CALLS, st.sampled_from([*RESULTS]), st.sampled_from([*WORDS])
)

# To the limit of the lookback, from an entry at the end of the previous request.
_STRETCH = st.sampled_from([("grow", "said", 0, "string", f"{n} blocks") for n in (17, 18, 19, 20)])

_SETTINGS: dict[str, tuple[Any, ...]] = {
    "model": MODELS,
    "key": ("a", "b"),
    "tools": ((0, 1), (0, 1, 2), (1, 0), (0, 1, 3), (3, 0, 1), (0,), ()),
    "tool_choice": (
        None,
        {"type": "auto"},
        {"type": "any"},
        {"type": "auto", "disable_parallel_tool_use": True},
        {"type": "auto", "disable_parallel_tool_use": False},
    ),
    "thinking": (None, {"type": "disabled"}, {"type": "adaptive"}, {"type": "adaptive", "display": "omitted"}),
    "effort": (None, "low", "medium", "high"),
    "speed": (None, "standard", "fast"),
    "format": (None, FORMAT),
}
_SET = st.one_of(
    [st.tuples(st.just("set"), st.just(name), st.sampled_from(values)) for name, values in _SETTINGS.items()]
)
_CHANGES = st.one_of(
    _GROW,
    _GROW,
    _STRETCH,
    st.just(("keep",)),
    st.tuples(st.just("fork"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["edit", "split"]), st.integers(0, 60)),
    _SET,
)

STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.builds(
        Step,
        number=st.sampled_from([0, 0, 0, 1, 2]),
        change=_CHANGES,
        wait=st.sampled_from(WAITS),
        writing=WRITINGS,
        is_held=st.booleans(),
    ),
    min_size=2,
    max_size=12,
)
