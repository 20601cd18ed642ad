"""Content blocks and Hypothesis strategies for tests of conversations."""

import json
from collections.abc import Sequence

from hypothesis import strategies as st

from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.model.catalog import Role

HEADER = KeyHeader(model="claude-opus-5-5")

CHARACTERS = st.characters(exclude_categories=["Cs"])

RAW_INPUTS = (
    b"{}",
    b'{"n":1.0,"m":1e5}',
    '{"plain":"é","escaped":"\\u00e9"}'.encode(),
    b'{\n  "path": "a.py",\n  "line": 3\n}',
    b'{"b":1,"a":{"d":[],"c":null}}',
    b'{ "big": 123456789012345678901234567890 }',
)
"""Tool input as models stream it, with numbers, escapes, key order and white space that re-encoding would change."""


def text(words: str) -> bytes:
    return json.dumps({"type": "text", "text": words}, ensure_ascii=False).encode()


def thinking(words: str = "hm") -> bytes:
    return json.dumps({"type": "thinking", "thinking": words, "signature": "c2ln"}).encode()


def tool_use(id_: str, raw_input: bytes = b"{}") -> bytes:
    return b'{"type":"tool_use","id":"%s","name":"Bash","input":%s}' % (id_.encode(), raw_input)


def tool_result(id_: str, words: str = "done") -> bytes:
    return json.dumps({"type": "tool_result", "tool_use_id": id_, "content": words}).encode()


def image() -> bytes:
    source = {"type": "base64", "media_type": "image/png", "data": "aWs="}
    return json.dumps({"type": "image", "source": source}).encode()


@st.composite
def _texts(draw: st.DrawFn) -> bytes:
    words = draw(st.text(CHARACTERS, max_size=12))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    return json.dumps({"type": "text", "text": words}, ensure_ascii=draw(st.booleans()), separators=separators).encode()


_ids = st.integers(0, 99).map("toolu_{}".format)

BLOCKS: st.SearchStrategy[bytes] = st.one_of(
    _texts(),
    st.just(text("")),
    st.just(thinking()),
    st.just(b'{"type":"redacted_thinking","data":"eA=="}'),
    st.builds(tool_use, _ids, st.sampled_from(RAW_INPUTS)),
    st.builds(tool_result, _ids, st.text(CHARACTERS, max_size=8)),
    st.just(image()),
)

ROLES: st.SearchStrategy[Role] = st.sampled_from(["user", "assistant"])

MESSAGES: st.SearchStrategy[tuple[Role, Sequence[bytes]]] = st.tuples(ROLES, st.lists(BLOCKS, min_size=1, max_size=3))

TOOLS = st.lists(
    st.sampled_from([b'{"name":"Bash","input_schema":{"type":"object"}}', b'{"name":"Read"}', b"{}"]),
    max_size=2,
)

SYSTEMS = st.lists(_texts(), max_size=2)
