"""A transcript restores what was recorded, byte for byte, or reports the damaged line."""

import json
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from coterie.agents.errors import TranscriptCorrupt
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.transcript import LoadedTranscript, TranscriptWriter, load_transcript
from coterie.agents.loop.model.catalog import Role
from coterie.clock import Clock
from coterie.files import Operation, TornWrite, file_faults
from tests.agents.conversation_blocks import (
    HEADER,
    MESSAGES,
    RAW_INPUTS,
    SYSTEMS,
    TOOLS,
    image,
    text,
    thinking,
    tool_result,
    tool_use,
)
from tests.examples import examples

REUSES_DIRECTORY = examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def assert_same(loaded: LoadedTranscript, conversation: Conversation) -> None:
    assert loaded.conversation is not None
    assert loaded.conversation.prefix_bytes() == conversation.prefix_bytes()
    assert [s.hash for s in loaded.conversation.segments] == [s.hash for s in conversation.segments]
    assert loaded.conversation.header == conversation.header
    assert loaded.conversation.epoch == conversation.epoch
    assert loaded.conversation.marks == conversation.marks


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.jsonl"


class StoppedClock(Clock):
    """Clock with a constant time, so that the written bytes depend only on the input."""

    def now(self) -> float:
        return 1_790_000_000.25


def recorded(path: Path) -> Conversation:
    """An epoch record, two messages, marks: four records."""
    header = attrs.evolve(HEADER, thinking=b'{\n"type":"adaptive"}')
    conversation = Conversation.begin(header, tools=[b'{"name":"Bash"}'], system=[text("Be brief.")])
    with TranscriptWriter.open(path, StoppedClock()) as writer:
        writer.record(conversation)
        conversation.append("user", [text("Go.")])
        writer.record(conversation)
        conversation.append("assistant", [thinking(), *(tool_use("t", raw) for raw in RAW_INPUTS)])
        conversation.sent(conversation.render(max_tokens=1))
        writer.record(conversation)
    return conversation


def test_every_record_is_one_line_of_json(path: Path) -> None:
    recorded(path)
    content = path.read_bytes()
    lines = content.strip().split(b"\n\n")
    assert [json.loads(line)["kind"] for line in lines] == ["epoch", "message", "message", "marks"]
    assert content == b"".join(b"\n" + line + b"\n" for line in lines)


def test_record_without_changes_writes_nothing(path: Path) -> None:
    conversation = recorded(path)
    before = path.read_bytes()
    with TranscriptWriter.open(path) as writer:
        writer.record(conversation)
        assert writer.loaded.conversation is not None
        writer.record(writer.loaded.conversation)
        writer.sync()
    assert path.read_bytes() == before


def test_resumed_conversation_continues_at_its_end(path: Path) -> None:
    conversation = recorded(path)
    before = path.read_bytes()
    with TranscriptWriter.open(path) as writer:
        resumed = writer.loaded.conversation
        assert resumed is not None
        for each in (conversation, resumed):
            each.append("user", [tool_result("t")])
        writer.record(resumed)
    assert path.read_bytes().startswith(before)
    assert resumed.render(max_tokens=1).body == conversation.render(max_tokens=1).body
    assert_same(load_transcript(path), conversation)


def test_new_epoch_writes_only_changed_segments(path: Path) -> None:
    conversation = recorded(path)
    sizes = [path.stat().st_size]
    with TranscriptWriter.open(path) as writer:
        conversation.append("user", [text("see"), image()])
        writer.record(conversation)
        sizes.append(path.stat().st_size)
        conversation.rewrite(conversation.messages, attrs.evolve(conversation.header, effort="max"))
        writer.record(conversation)
        sizes.append(path.stat().st_size)
        conversation.rewrite([("user", [text("Go."), text("summary")])])
        writer.record(conversation)
    last = json.loads(path.read_bytes().splitlines()[-1])
    assert conversation.epoch == last["epoch"] == 3
    assert last["keep"] == 2
    assert sizes[2] - sizes[1] < 500
    assert_same(load_transcript(path), conversation)


def last_record(content: bytes) -> int:
    return content.rindex(b"\n{")


@pytest.mark.slow
def test_record_torn_at_any_byte_is_dropped(path: Path) -> None:
    before = recorded(path)
    after = before.fork()
    after.append("user", [text("é"), tool_result("t", "end")])
    with TranscriptWriter.open(path) as writer:
        writer.record(after)
    whole = path.read_bytes()
    start = last_record(whole)
    for cut in range(start, len(whole)):
        path.write_bytes(whole[:cut])
        loaded = load_transcript(path)
        is_whole = cut == len(whole) - 1
        assert_same(loaded, after if is_whole else before)
        assert loaded.dropped_bytes == (0 if is_whole else cut - start)
        with TranscriptWriter.open(path) as writer:
            writer.record(after)
        assert_same(load_transcript(path), after)


def test_torn_first_record_leaves_no_conversation(path: Path) -> None:
    path.touch()
    assert load_transcript(path) == LoadedTranscript()
    path.write_bytes(b'\n{"kind":"epo')
    with TranscriptWriter.open(path) as writer:
        assert writer.loaded == LoadedTranscript(dropped_bytes=13)
        conversation = Conversation.begin(HEADER)
        writer.record(conversation)
    assert_same(load_transcript(path), conversation)


@attrs.define
class TornOnce:
    """Fault hook that truncates the next write."""

    size: int | None

    def before(self, operation: Operation, path: Path, size: int) -> int:
        """Allow at most `size` bytes of the first write."""
        del operation, path
        allowed, self.size = self.size, None
        return size if allowed is None else min(allowed, size)


@pytest.mark.parametrize("size", [0, 1, 2, 50, 200])
def test_failed_write_is_repeated(path: Path, size: int) -> None:
    conversation = recorded(path)
    with TranscriptWriter.open(path) as writer, file_faults(TornOnce(size)):
        conversation.append("user", [text("a" * 300)])
        with pytest.raises(TornWrite):
            writer.record(conversation)
        conversation.append("assistant", [text("b")])
        writer.record(conversation)
    loaded = load_transcript(path)
    assert_same(loaded, conversation)
    assert loaded.dropped_bytes == 0


@pytest.mark.slow
@given(data=st.data())
@REUSES_DIRECTORY
def test_damage_is_reported_with_its_line_and_never_loaded(path: Path, data: st.DataObject) -> None:
    path.unlink(missing_ok=True)
    recorded(path)
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 2))
    damaged = bytearray(whole)
    damaged[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(damaged)
    with pytest.raises(TranscriptCorrupt) as caught:
        load_transcript(path)
    assert caught.value.line in (whole[: at + 1].count(b"\n"), whole[: at + 1].count(b"\n") + 1)


@given(garbage=st.binary(max_size=60))
@REUSES_DIRECTORY
def test_garbage_is_torn_or_corrupt(path: Path, garbage: bytes) -> None:
    path.write_bytes(garbage)
    try:
        loaded = load_transcript(path)
    except TranscriptCorrupt:
        return
    assert loaded == LoadedTranscript(dropped_bytes=len(garbage))


def sealed(start: bytes) -> bytes:
    return b'\n%s,"crc":"%08x"}\n' % (start, zlib.crc32(start))


def test_unknown_kind_of_record_is_skipped(path: Path) -> None:
    conversation = recorded(path)
    with path.open("ab") as file:
        file.write(sealed(b'{"kind":"boundary","v":7,"blocks":"not ours"'))
    with TranscriptWriter.open(path) as writer:
        conversation.append("user", [text("on")])
        writer.record(conversation)
    assert b'"boundary"' in path.read_bytes()
    assert_same(load_transcript(path), conversation)


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (b'{"kind":"marks","v":2', "version 2"),
        (b'{"kind":"marks","v":1,"previous":99', "outside"),
        (b'{"kind":"message","v":1,"role":"user","blocks":[],"hash":""', "at least one block"),
        (b'{"kind":"message","v":1,"role":"robot","blocks":[{}],"hash":""', "robot"),
        (b'{"kind":"message","v":1,"role":"user","blocks":[{}],"hash":"00"', "does not match"),
        (b'{"kind":"epoch","v":1', "epoch"),
        (b'{"v":1', "kind"),
    ],
)
def test_complete_but_invalid_record_is_corrupt(path: Path, start: bytes, reason: str) -> None:
    recorded(path)
    with path.open("ab") as file:
        file.write(sealed(start))
    with pytest.raises(TranscriptCorrupt, match=reason) as caught:
        load_transcript(path)
    assert caught.value.line == 10


def test_lost_record_is_detected(path: Path) -> None:
    recorded(path)
    lines = path.read_bytes().strip().split(b"\n\n")
    path.write_bytes(b"\n".join([lines[0], *lines[2:], b""]))
    with pytest.raises(TranscriptCorrupt, match="does not match") as caught:
        load_transcript(path)
    assert caught.value.line == 2
    path.write_bytes(b"\n".join([*lines[1:], b""]))
    with pytest.raises(TranscriptCorrupt, match="begin with an epoch"):
        load_transcript(path)


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
