"""The server answers any JSON as the API does, and keeps running."""

import hashlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import attrs
import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.loop.model.catalog import known_models
from coterie.scenarios.api_server.caching.context_editing import BETA, CLEAR_THINKING, CLEAR_TOOL_USES
from coterie.scenarios.api_server.rules.thinking_signatures import ThinkingSigner
from tests.embedded_server import Served, open_served
from tests.examples import examples
from tests.scenarios.api_server.api.api_client import AUTH, ApiPeer, ask, named, open_peer, request
from tests.scenarios.api_server.request_samples import (
    EPHEMERAL,
    HOUR,
    assistant,
    make_call,
    sized,
    text,
    thinking,
    tool,
    tool_result,
    tool_use,
    user,
)

SCRIPT = """
default: [{text: good, times: always}]
talker:
  - thinking: hm
    text: "{{last_user_text}} {{first_user_text}} {{model}}"
    tools: [{Plan: {city: Oslo}}, {Read: {path: "{{last_user_text}}"}}]
    times: always
planner: [{text: '{"city": "Oslo"}', times: always}]
"""
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}, "days": {"$ref": "#/$defs/days"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"days": {"anyOf": [{"type": "array", "items": {"type": "integer"}, "minItems": 1}, {"const": None}]}},
}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
DOCUMENT = {
    "type": "document",
    "source": {"type": "content", "content": [text("page")]},
    "citations": {"enabled": True},
}
SEARCH = (
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
)
FOUND_PAGE = {"type": "search_result", "source": "https://a.b", "title": "a page", "content": [text("page")]}
BETAS = f"{BETA},{known_models().betas['cache_edits']}"

TALK = request(
    stream=False,
    thinking={"type": "adaptive", "display": "omitted"},
    tool_choice={"type": "auto", "disable_parallel_tool_use": True},
    cache_control=EPHEMERAL,
    stop_sequences=["stop", "halt"],
    metadata={"user_id": "u"},
    diagnostics={"previous_message_id": None},
    speed="standard",
    output_config={"effort": "low"},
    context_management={
        "edits": [
            {"type": CLEAR_THINKING, "keep": {"type": "thinking_turns", "value": 1}},
            {
                "type": CLEAR_TOOL_USES,
                "trigger": {"type": "tool_uses", "value": 1},
                "keep": {"type": "tool_uses", "value": 0},
                "clear_at_least": {"type": "input_tokens", "value": 1},
                "exclude_tools": ["Plan"],
                "clear_tool_inputs": ["Read"],
            },
        ]
    },
    system=[sized(600, cache_control=HOUR), text("be brief")],
    tools=[
        tool("Plan", strict=True, input_schema=SCHEMA, description="plans"),
        tool("Read", cache_control=HOUR),
        tool("Later", defer_loading=True),
        {"type": "web_search_20250305", "name": "web_search", "strict": True},
    ],
    messages=[
        user(text("go"), IMAGE, DOCUMENT, FOUND_PAGE),
        assistant(text("I look."), *SEARCH, tool_use("toolu_1", path="a"), tool_use("toolu_2", "Plan", city="Oslo")),
        user(
            tool_result("toolu_1", [text("found " * 30), IMAGE], is_error=False),
            tool_result("toolu_2", "planned"),
            {"type": "cache_edits", "edits": [{"type": "delete", "cache_reference": "toolu_1"}]},
            text("and?", cache_control=EPHEMERAL),
        ),
        {"role": "system", "content": "remember"},
    ],
)
PLAN = request(output_config={"effort": "high", "format": {"type": "json_schema", "schema": SCHEMA}}, stream=True)
FORCED = {**PLAN, "tools": [tool("Plan")], "tool_choice": {"type": "tool", "name": "Plan"}, "stream": False}


def thoughtful() -> dict[str, Any]:
    """A request that brings back thinking which a server of seed 0 signed."""
    asked, model = user(text("go")), "claude-haiku-5-5"
    signer = ThinkingSigner(hashlib.blake2b(b"0").digest())
    signature = signer.sign(make_call(asked, model=model), "hm", [])
    history = [asked, assistant(thinking(signature=signature), text("so")), user(text("on"))]
    return request(model=model, thinking={"type": "adaptive"}, messages=history)


BODIES = (("talker", TALK), ("planner", PLAN), ("planner", FORCED), ("default", thoughtful()))

DEEP = [b"[" * depth + b"]" * depth for depth in (50, 98, 101, 2000, 200_000)]
RAW = (
    *(b"null", b"true", b"false", b"0", b"-1", b"1.5", b'""', b'" "', b"{}", b"[]", b"[null]", b"[[]]", b'[""]'),
    *(b"1" + b"0" * zeros for zeros in (9, 19, 30, 400, 5000)),
    *(b"[{}]", b"-9223372036854775809", b"1e308", b"1e999", b"-0.0", b"1E+2"),
    *(b"NaN", b"Infinity", b"-Infinity", b"nul", b"'x'", b"01", b"0x1", b"1,", b"}", b""),
    *(b'"\\ud800"', b'"\\udc00x"', b'"\\ud83d\\ude00"', b'"\\u0000"', b'"\xff"', b'"\xed\xa0\x80"', b'"\n"'),
    *(b'"' + b"x" * 5000 + b'"', b'{"type":"text"}', b'{"type":"text","text":null}', b'{"type":[]}', b'{"type":{}}'),
    *(b'{"type":"thinking","thinking":"","signature":""}', b'{"type":"tool_use","id":"toolu_1","name":"x","input":{}}'),
    *(b'{"type":"tool_result","tool_use_id":"toolu_1"}', b'{"type":"cache_edits","edits":[{}]}', b'{"$ref":"#"}'),
    *(b'{"type":"ephemeral","ttl":[]}', b'{"type":"tool_result","content":[[]]}', b'{"$ref":"#/properties"}'),
    *DEEP,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
VALUES = st.sampled_from(RAW) | JSON.map(msgspec.json.encode)

Path = tuple[str | int, ...]
Spoilt = list[tuple[str, str, bytes]]
"""Requests of one connection: key, path and body."""


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield (*path, key)
        yield from places(member, (*path, key))


PLACES = {number: list(places(body)) for number, (_, body) in enumerate(BODIES)}


@attrs.frozen
class Change:
    """One part of a body: replaced by raw bytes, given a second time in front, or left out."""

    path: Path
    raw: bytes
    how: str

    def applied(self, body: bytes) -> bytes:
        """Return *body* with the change applied, if the part exists."""
        try:
            tree = msgspec.json.decode(body)
            parent = tree
            for key in self.path[:-1]:
                parent = parent[key]
            old = parent[self.path[-1]]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
            return body
        if isinstance(parent, str):
            return body
        if self.how == "leave out":
            del parent[self.path[-1]]
            return msgspec.json.encode(tree)
        parent[self.path[-1]] = "@@"
        written = self.raw if self.how == "replace" else self._twice(msgspec.json.encode(old))
        return msgspec.json.encode(tree).replace(b'"@@"', written, 1)

    def _twice(self, old: bytes) -> bytes:
        key = self.path[-1]
        return self.raw + b"," + (msgspec.json.encode(key) + b":" if isinstance(key, str) else b"") + old


@st.composite
def spoilt(draw: st.DrawFn) -> tuple[str, str, bytes]:
    """Whose request it is, where it goes, and a good body with one to three changes."""
    number = draw(st.sampled_from(list(PLACES)))
    agent, body = BODIES[number]
    content = msgspec.json.encode(body)
    # A part left out is soon refused.
    how = st.sampled_from([*["replace"] * 4, "leave out", "twice"])
    change = st.builds(Change, st.sampled_from(PLACES[number]), VALUES, how)
    for one in draw(st.lists(change, min_size=1, max_size=3)):
        content = one.applied(content)
    path = draw(st.sampled_from(["/v1/messages"] * 3 + ["/v1/messages/count_tokens?beta=true"]))
    return agent, path, content


async def put_up_with(served: Served, peer: ApiPeer, agent: str, path: str, body: bytes) -> None:
    """Send *body* on a connection that must outlive it; the answer is one that the API could give."""
    version = "2023-06-01" if len(body) % 2 else "2026-10-21"
    headers = {**AUTH, **named(agent), "anthropic-beta": BETAS, "anthropic-version": version}
    await peer.send("POST", path, headers, body)
    answer = await peer.read()
    assert not served.server.bugs, served.server.bugs[0]
    assert answer.is_whole
    assert answer.headers["request-id"]
    if answer.status != 200:
        assert answer.status in (400, 401, 404, 413, 429), body
        assert answer.error
    elif answer.headers["content-type"].startswith("text/event-stream"):
        assert answer.events[-1]["type"] == "message_stop"
    else:
        assert answer.json


async def put_up_with_all(requests: Spoilt, *, is_strict: bool) -> None:
    async with open_served(SCRIPT, is_strict=is_strict) as served:
        async with open_peer(served) as peer:
            for agent, path, body in requests:
                await put_up_with(served, peer, agent, path, body)
        assert (await ask(served)).json["content"] == [text("good")]


@pytest.mark.parametrize("is_strict", [True, False])
async def test_requests_are_valid_before_they_are_changed(*, is_strict: bool) -> None:
    async with open_served(SCRIPT, is_strict=is_strict) as served, open_peer(served) as peer:
        for agent, body in BODIES:
            await put_up_with(served, peer, agent, "/v1/messages", msgspec.json.encode(body))
        assert [entry["error"] for entry in served.requests] == [None] * len(BODIES)


FOUND = (
    (TALK, Change(("diagnostics", "previous_message_id"), b"[]", "replace")),
    (TALK, Change(("messages", 0, "content", 2, "source", "content", 0), b'{"type":{}}', "replace")),
    (TALK, Change(("system", 1), b'{"type":"cache_edits","edits":[{}]}', "replace")),
    (TALK, Change(("tools", 2), b'{"type":"cache_edits","edits":[{}]}', "replace")),
    (TALK, Change(("tools", 3), b'{"type":"bash_20250124","name":[],"strict":true}', "replace")),
    (FORCED, Change(("output_config", "format", "schema", "properties", "city"), DEEP[3], "replace")),
    (request(), Change(("messages", 0, "content"), b"[]", "replace")),
    (request(), Change(("messages", 0, "role"), b'"system","content":[]', "replace")),
)
"""Requests that once had no answer."""


@pytest.mark.parametrize(("body", "change"), FOUND)
@pytest.mark.parametrize("is_strict", [True, False])
async def test_requests_that_once_failed_are_answered(body: dict[str, Any], change: Change, *, is_strict: bool) -> None:
    content = change.applied(msgspec.json.encode(body))
    await put_up_with_all([(agent, "/v1/messages", content) for agent in ("talker", "default")], is_strict=is_strict)


SPOILT = st.lists(spoilt(), min_size=1, max_size=20)


@pytest.mark.slow
@examples(30)
@given(requests=SPOILT, is_strict=st.booleans())
def test_malformed_request_is_answered(requests: Spoilt, *, is_strict: bool) -> None:
    trio.run(partial(put_up_with_all, requests, is_strict=is_strict))


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("is_strict", [True, False])
async def test_every_part_of_a_request_accepts_any_value(*, is_strict: bool) -> None:
    for number, (agent, body) in enumerate(BODIES):
        content = msgspec.json.encode(body)
        for path in PLACES[number]:
            spoilt_here = [Change(path, raw, "replace").applied(content) for raw in RAW]
            await put_up_with_all([(agent, "/v1/messages", one) for one in spoilt_here], is_strict=is_strict)
