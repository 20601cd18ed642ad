"""Contract of a conversation: bytes stay unchanged, are shared by forks, and are rewritten only in a new epoch."""

import json
from typing import Any

import attrs
import pytest

from coterie.agents.loop.conversation.cache_markers import CacheTtls
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.model.catalog import Role
from tests.agents.conversation_blocks import HEADER, image, text, thinking, tool_result, tool_use


def begun() -> Conversation:
    conversation = Conversation.begin(HEADER, tools=[b'{"name":"Bash"}'], system=[text("Be brief.")])
    conversation.append("user", [text("Go.")])
    return conversation


def body_of(conversation: Conversation) -> Any:
    return json.loads(conversation.render(max_tokens=10).body)


def test_body_contains_parameters_sections_and_messages() -> None:
    header = KeyHeader(
        model="claude-opus-5-5",
        betas=("b", "a"),
        tool_choice=b'{"type": "auto"}',
        thinking=b'{"type":"adaptive"}',
        output_format=b'{"type":"json_schema","schema":{}}',
        context_management=b'{"edits":[]}',
        effort="low",
        speed="fast",
    )
    conversation = Conversation.begin(header, tools=[b'{"name":"Bash"}'], system=[b'{"type":"text","text":"s"}'])
    conversation.append("user", [text("a"), text("b")])
    conversation.append("assistant", [text("c")])
    body = json.loads(conversation.render(max_tokens=7, stream=False, helper=True).body)
    marker = {"cache_control": {"type": "ephemeral"}}
    assert body == {
        "max_tokens": 7,
        "stream": False,
        "model": "claude-opus-5-5",
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {}}},
        "speed": "fast",
        "context_management": {"edits": []},
        "tools": [{"name": "Bash"}],
        "system": [{"type": "text", "text": "s", **marker}],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b", **marker}],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "c"}]},
        ],
    }


def test_key_header_is_restored_and_its_http_headers_are_only_in_hash() -> None:
    header = KeyHeader(model="m", betas=("b", "a"), thinking=b'{\n "type" : "adaptive"}', effort="max", has_images=True)
    assert KeyHeader.from_bytes(header.to_bytes()) == header
    with pytest.raises(ValueError, match=r"tool_choice: the data must be one JSON object"):
        KeyHeader(model="m", tool_choice=b'"auto"')
    headers = [HEADER, attrs.evolve(HEADER, betas=("x",)), attrs.evolve(HEADER, api_version="2023-06-01")]
    assert len({Conversation.begin(header).prefix_hash for header in headers}) == 3
    assert {header.parameters() for header in headers} == {b'"model":"claude-opus-5-5"'}


@pytest.mark.parametrize(
    ("role", "blocks"),
    [
        ("user", []),
        ("user", [b""]),
        ("user", [b"[]"]),
        ("user", [b'"text"']),
        ("user", [b'{"type":"text"'[:-1]]),
        ("user", [b'{"type":"text",}']),
        ("user", [b'{"type":"text","text":"a\nb"}']),
        ("user", [b'{"type":"text","text":"\xff"}']),
        ("user", [b'{"type":"tool_use","input":' + b"[" * 5000 + b"]" * 5000 + b"}"]),
        ("user", [b' {"type":"text","text":"a"}']),
        ("user", [b'{"type":"text"}{"type":"text"}']),
        ("user", [b'{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}']),
        ("user", [text("good"), b"bad"]),
        ("robot", [text("good")]),
    ],
)
def test_invalid_message_is_refused_without_change(role: Role, blocks: list[bytes]) -> None:
    conversation = begun()
    before = conversation.prefix_bytes(), conversation.prefix_hash, conversation.epoch
    with pytest.raises(ValueError, match=r"."):
        conversation.append(role, blocks)
    with pytest.raises(ValueError, match=r"."):
        conversation.rewrite([("user", [text("a")]), (role, blocks)])
    assert (conversation.prefix_bytes(), conversation.prefix_hash, conversation.epoch) == before


def test_only_open_calls_get_a_placeholder() -> None:
    parent = begun()
    parent.append("assistant", [tool_use("toolu_1")])
    parent.append("user", [tool_result("toolu_1")])
    parent.append("assistant", [text("Done.")])
    fork = parent.fork_with("started", "Go on.")
    assert [segment.block_type for segment in fork.segments[len(parent) :]] == ["text"]
    parent.append("assistant", [tool_use("toolu_2"), text("and"), tool_use("toolu_3")])
    result = body_of(parent.fork_with("started", "Look left."))["messages"][-1]
    assert [block.get("tool_use_id") for block in result["content"]] == ["toolu_2", "toolu_3", None]
    assert result["content"][0]["content"] == [{"type": "text", "text": "started"}]


def test_rewrite_begins_epoch_with_same_tools_and_system() -> None:
    conversation = begun()
    kept = conversation.messages
    conversation.append("assistant", [text("long")])
    old = conversation.fork()
    conversation.sent(conversation.render(max_tokens=1))
    conversation.rewrite([("user", [text("summary")])])
    assert conversation.epoch == 1
    assert conversation.marks.previous is None
    assert old.epoch == 0
    assert conversation.first_difference(old) == 2
    assert [m["content"][0]["text"] for m in body_of(conversation)["messages"]] == ["summary"]
    assert body_of(conversation)["tools"] == [{"name": "Bash"}]
    conversation.rewrite([*kept, ("user", [text("summary")])])
    assert conversation.first_difference(old) == 3, "the hashes of kept messages are equal"


def test_changed_header_begins_epoch_with_same_bytes_and_other_hashes() -> None:
    conversation = begun()
    old = conversation.fork()
    conversation.rewrite(conversation.messages, attrs.evolve(conversation.header, effort="max"))
    assert (conversation.epoch, conversation.first_difference(old)) == (1, 0)
    assert all(now.data is before.data for now, before in zip(conversation.segments, old.segments, strict=True))


@pytest.mark.parametrize(
    "block",
    [
        image(),
        b'{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"a"},{"type":"image"}]}',
        b'{"type":"document","source":{"type":"content","content":[{"type":"image"}]}}',
        b'{"type":"tool_result","content":[{"type":"document","source":{"content":[{"type":"image"}]}}]}',
    ],
)
def test_only_first_image_begins_epoch(block: bytes) -> None:
    conversation = begun()
    old = conversation.fork()
    conversation.append("user", [text("see"), block])
    assert (conversation.epoch, conversation.header.has_images) == (1, True)
    assert conversation.first_difference(old) == 0
    assert old.prefix_hash == begun().prefix_hash
    conversation.append("user", [block])
    assert conversation.epoch == 1
    conversation.rewrite([("user", [text("no pictures")])])
    assert (conversation.epoch, conversation.header.has_images) == (2, False)
    assert conversation.prefix.hash_at(2) == old.prefix.hash_at(2)


@pytest.mark.parametrize(
    "block",
    [
        text("image"),
        tool_use("t", b'{"type":"image"}'),
        tool_result("t", '[{"type":"image"}]'),
        b'{"type":"document","source":{"type":"base64","data":"eA=="}}',
    ],
)
def test_text_about_images_begins_no_epoch(block: bytes) -> None:
    conversation = begun()
    conversation.append("user", [block])
    assert (conversation.epoch, conversation.header.has_images) == (0, False)


def test_long_history_is_few_chunks_shared_by_later_requests() -> None:
    """Bytes of earlier turns are joined once; a fork cut before a merge still renders the same bytes."""
    conversation = Conversation.begin(HEADER)
    forks = []
    for turn in range(400):
        conversation.append("user" if turn % 2 == 0 else "assistant", [text(f"{turn} " + "x" * 10_000)])
        conversation.sent(conversation.render(max_tokens=1))
        if turn % 50 == 0:
            forks.append((conversation.fork(), conversation.render(max_tokens=1).body))
    before, after = conversation.render(max_tokens=1), conversation.render(max_tokens=1)
    assert len(before.chunks) < 12
    assert sum(one is other for one, other in zip(before.chunks, after.chunks, strict=True)) >= len(before.chunks) - 3
    assert json.loads(before.body)["messages"][399]["content"][0]["text"].startswith("399 ")
    for fork, body in forks:
        assert fork.render(max_tokens=1).body == body
        fork.append("assistant", [text("own way")])
        fork.append("user", [text("y" * 200_000)])
        assert fork.prefix_bytes()[: len(body) // 2] == conversation.prefix_bytes()[: len(body) // 2]
        assert json.loads(fork.render(max_tokens=1).body)["messages"][-2]["content"][0]["text"] == "own way"


def sectioned() -> Conversation:
    """Segments: 0 tool, 1 and 2 system, 3 and 4 first user message."""
    conversation = Conversation.begin(HEADER, tools=[b"{}"], system=[text("a"), text("b")])
    conversation.append("user", [text("context"), text("task")])
    return conversation


def marks(conversation: Conversation) -> tuple[int, ...]:
    return conversation.render(max_tokens=1).marks


def answer(conversation: Conversation) -> None:
    conversation.sent(conversation.render(max_tokens=1))


def test_requests_mark_system_context_previous_end_and_their_own() -> None:
    """Other agents of this type may share everything before the task."""
    conversation = sectioned()
    assert marks(conversation) == (2, 3, 4)
    answer(conversation)
    conversation.append("assistant", [thinking(), tool_use("toolu_1")])
    conversation.append("user", [tool_result("toolu_1")])
    assert marks(conversation) == (2, 4, 7)
    answer(conversation)
    conversation.append("assistant", [text("more")])
    conversation.append("user", [text("and?")])
    assert marks(conversation) == (2, 4, 7, 9)


def test_without_system_the_tools_are_marked_and_without_messages_is_no_request() -> None:
    deferred = b'{"name":"Rare","defer_loading":true}'
    conversation = Conversation.begin(HEADER, tools=[b"{ }", deferred], system=[text("")])
    with pytest.raises(ValueError, match="without messages"):
        conversation.render(max_tokens=1)
    conversation.append("user", [text("go")])
    rendered = conversation.render(max_tokens=1)
    assert rendered.marks == (0, 3)
    assert json.loads(rendered.body)["tools"][0] == {"cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize(("said", "marked", "previous"), [("go", (0,), 0), ("", (), None)])
def test_without_tools_and_system_only_markable_messages_are_marked(
    said: str, marked: tuple[int, ...], previous: int | None
) -> None:
    conversation = Conversation.begin(HEADER)
    conversation.append("user", [text(said)])
    assert marks(conversation) == marked
    answer(conversation)
    assert conversation.marks.previous == previous


def ttls(conversation: Conversation, ttl: CacheTtls) -> list[str]:
    body = json.loads(conversation.render(max_tokens=1, ttl=ttl).body)
    found: list[dict[str, Any]] = [*body.get("tools", []), *body.get("system", [])]
    found += [block for message in body["messages"] for block in message["content"]]
    return [block["cache_control"].get("ttl", "5m") for block in found if "cache_control" in block]


def test_early_markers_can_have_ttl_of_an_hour_that_never_outlives_earlier_one() -> None:
    conversation = sectioned()
    answer(conversation)
    conversation.append("user", [text("more")])
    assert ttls(conversation, CacheTtls(system="1h", context="1h")) == ["1h", "1h", "5m"]
    assert ttls(conversation, CacheTtls(system="1h")) == ["1h", "5m", "5m"]
    with pytest.raises(ValueError, match="1h"):
        CacheTtls(system="5m", context="1h")
    conversation = Conversation.begin(HEADER)
    conversation.append("assistant", [text("I began.")])
    answer(conversation)
    conversation.append("user", [text("go")])
    assert ttls(conversation, CacheTtls(system="1h", context="1h")) == ["5m", "5m"]


def test_forks_share_all_but_directive_and_new_agents_their_system() -> None:
    parent = Conversation.begin(HEADER, tools=[b"{}"], system=[text("s")])
    parent.append("user", [text("context"), text("task")])
    assert parent.shared_hash == parent.prefix.hash_at(2)
    parent.sent(parent.render(max_tokens=1))
    assert parent.shared_hash is None
    parent.append("assistant", [tool_use("toolu_1")])
    left, right = parent.fork_with("started", "Left."), parent.fork_with("started", "Right.")
    assert left.shared_hash == right.shared_hash == left.prefix.hash_at(len(left) - 1)
    left.sent(left.render(max_tokens=1))
    assert left.shared_hash is None


def test_last_answered_request_can_be_resent() -> None:
    conversation = Conversation.begin(HEADER, system=[text("s")])
    conversation.append("user", [text("context"), text("task"), text("")])
    sent = conversation.render(max_tokens=1)
    assert conversation.answered().render(max_tokens=1).body == sent.body
    conversation.sent(sent)
    conversation.append("assistant", [text("Yes.")])
    again = conversation.answered()
    assert [message.role for message in again.messages] == ["user"]
    assert again.messages == conversation.messages[:1]
