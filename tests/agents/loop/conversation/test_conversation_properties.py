"""After any operations, bytes and hashes of a conversation equal those of one built in a single pass."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.transcript import TranscriptWriter, load_transcript
from coterie.agents.loop.model.catalog import Role
from tests.agents.conversation_blocks import HEADER, MESSAGES, SYSTEMS, TOOLS, image
from tests.examples import examples


@attrs.define(eq=False)
class Pair:
    """A conversation and plain lists of its content."""

    conversation: Conversation
    tools: list[bytes]
    system: list[bytes]
    messages: list[tuple[Role, Sequence[bytes]]]

    def fork(self) -> "Pair":
        """Fork the conversation; copy the lists."""
        return attrs.evolve(self, conversation=self.conversation.fork(), messages=[*self.messages])

    def check(self) -> None:
        """Compare every byte and hash."""
        afresh = Conversation.begin(self.header(), tools=self.tools, system=self.system)
        for role, blocks in self.messages:
            afresh.append(role, blocks)
        assert self.conversation.prefix_bytes() == self.header().to_bytes() + self.naive_bytes()
        assert [s.hash for s in self.conversation.segments] == [s.hash for s in afresh.segments]
        assert self.conversation.first_difference(afresh) is None

    def header(self) -> KeyHeader:
        """Return the header that fits the messages."""
        shown = any(image() in blocks for _, blocks in self.messages)
        return attrs.evolve(self.conversation.header, has_images=shown)

    def naive_bytes(self) -> bytes:
        """Return the sections of a request body up to the last block, by plain joins."""
        messages = [b'{"role":"%s","content":[%s' % (r.encode(), b",".join(b)) for r, b in self.messages]
        sections = {b"tools": b",".join(self.tools), b"system": b",".join(self.system)}
        sections[b"messages"] = b"]},".join(messages)
        return b"]".join(b',"%s":[%s' % item for item in sections.items() if item[1])

    def naive_body(self) -> Any:
        """Return the request built from parsed blocks."""
        body: dict[str, Any] = {"max_tokens": 9, "stream": True, "model": HEADER.model}
        for name, blocks in (("tools", self.tools), ("system", self.system)):
            if blocks:
                body[name] = [json.loads(block) for block in blocks]
        body["messages"] = [
            {"role": role, "content": [json.loads(block) for block in blocks]} for role, blocks in self.messages
        ]
        return json.loads(json.dumps(body))


def remove_markers(body: Any) -> list[dict[str, Any]]:
    """Remove the markers from *body*, and return the blocks that had one."""
    blocks = [*body.get("tools", []), *body.get("system", [])]
    blocks += [block for message in body["messages"] for block in message["content"]]
    return [block for block in blocks if block.pop("cache_control", None)]


def check_rendered(pair: Pair, *, helper: bool) -> None:
    rendered = pair.conversation.render(max_tokens=9, helper=helper)
    body = json.loads(rendered.body)
    marked = remove_markers(body)
    assert body == pair.naive_body()
    assert len(marked) == len(rendered.marks) <= 4
    assert not any("thinking" in block.get("type", "") or block.get("text") == "" for block in marked)
    pair.conversation.sent(rendered)


def reload(pair: Pair, path: Path) -> None:
    """Record the changes, and continue with the loaded conversation."""
    with TranscriptWriter.open(path) as writer:
        writer.record(pair.conversation)
    loaded = load_transcript(path)
    assert loaded.dropped_bytes == 0
    assert loaded.conversation is not None
    assert loaded.conversation.prefix_bytes() == pair.conversation.prefix_bytes()
    assert loaded.conversation.epoch == pair.conversation.epoch
    assert loaded.conversation.marks == pair.conversation.marks
    pair.conversation = loaded.conversation


ACTIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 9), MESSAGES),
    st.tuples(st.just("rewrite"), st.integers(0, 9), MESSAGES),
    st.tuples(st.sampled_from(["fork", "render", "helper", "reload", "effort"]), st.integers(0, 9), st.none()),
)


def act(pairs: list[Pair], directory: Path, action: tuple[str, int, Any]) -> None:
    name, number, message = action
    number %= len(pairs)
    pair = pairs[number]
    match name:
        case "append":
            pair.conversation.append(*message)
            pair.messages.append(message)
        case "rewrite":
            pair.messages = [*pair.messages[:1], message]
            pair.conversation.rewrite(pair.messages)
        case "fork":
            pairs.append(pair.fork())
        case "render" | "helper" if pair.messages:
            check_rendered(pair, helper=name == "helper")
        case "reload":
            reload(pair, directory / f"{number}.jsonl")
        case "effort":
            header = pair.conversation.header
            pair.conversation.rewrite(pair.conversation.messages, attrs.evolve(header, betas=(*header.betas, "b")))


@pytest.mark.slow
@given(TOOLS, SYSTEMS, st.lists(ACTIONS, max_size=15))
@examples(60)
def test_any_history_has_bytes_and_hashes_of_single_pass(
    tools: list[bytes], system: list[bytes], actions: list[tuple[str, int, Any]]
) -> None:
    pairs = [Pair(Conversation.begin(HEADER, tools=tools, system=system), tools, system, [])]
    with tempfile.TemporaryDirectory() as directory:
        for action in actions:
            act(pairs, Path(directory), action)
            for pair in pairs:
                pair.check()


@pytest.mark.slow
@given(TOOLS, SYSTEMS, st.lists(MESSAGES, min_size=1, max_size=5), st.text(max_size=9), st.text(max_size=9))
@examples(40)
def test_siblings_share_every_byte_before_directive(
    tools: list[bytes], system: list[bytes], messages: list[tuple[Role, Sequence[bytes]]], one: str, other: str
) -> None:
    parent = Conversation.begin(HEADER, tools=tools, system=system)
    for role, blocks in messages:
        parent.append(role, blocks)
    left, right = parent.fork_with("started", one), parent.fork_with("started", other)
    shared = len(left) - 1
    assert left.extends(parent)
    assert left.first_difference(right) == (None if one == other else shared)
    assert left.prefix_bytes(shared) == right.prefix_bytes(shared)
    assert left.render(max_tokens=1).marks == right.render(max_tokens=1).marks or not one or not other
