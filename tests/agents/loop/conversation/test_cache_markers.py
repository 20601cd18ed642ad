"""Cache markers: at most four, at positions that the next request finds, and never part of a segment."""

import json
from typing import Any

import pytest

from coterie.agents.loop.conversation.cache_markers import CacheTtls
from coterie.agents.loop.conversation.conversation import Conversation
from tests.agents.conversation_blocks import HEADER, text, thinking, tool_result, tool_use


def begun() -> Conversation:
    """Segments: 0 tool, 1 and 2 system, 3 and 4 first user message."""
    conversation = Conversation.begin(HEADER, tools=[b"{}"], system=[text("a"), text("b")])
    conversation.append("user", [text("context"), text("task")])
    return conversation


def marks(conversation: Conversation, *, helper: bool = False) -> tuple[int, ...]:
    return conversation.render(max_tokens=1, helper=helper).marks


def answer(conversation: Conversation) -> None:
    conversation.sent(conversation.render(max_tokens=1))


def test_first_request_marks_system_context_and_end_before_task() -> None:
    """Other agents of this type may share everything before the task."""
    assert marks(begun()) == (2, 3, 4)


def test_next_request_marks_previous_end_and_its_own() -> None:
    conversation = begun()
    answer(conversation)
    conversation.append("assistant", [thinking(), tool_use("toolu_1")])
    conversation.append("user", [tool_result("toolu_1")])
    assert marks(conversation) == (2, 4, 7)
    answer(conversation)
    conversation.append("assistant", [text("more")])
    conversation.append("user", [text("and?")])
    assert marks(conversation) == (2, 4, 7, 9)


def test_unanswered_request_keeps_previous_mark() -> None:
    conversation = begun()
    answer(conversation)
    conversation.append("user", [text("one")])
    conversation.render(max_tokens=1)
    conversation.append("user", [text("two")])
    assert marks(conversation) == (2, 4, 6)


def test_without_system_the_tools_are_marked() -> None:
    deferred = b'{"name":"Rare","defer_loading":true}'
    conversation = Conversation.begin(HEADER, tools=[b"{ }", deferred], system=[text("")])
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


def test_siblings_mark_last_placeholder_then_their_own_end() -> None:
    parent = begun()
    answer(parent)
    done = parent.fork()
    done.append("assistant", [text("done"), thinking()])
    assert marks(done.fork_with("started", "Look left.")) == (2, 4, 5, 7)
    parent.append("assistant", [tool_use("toolu_1"), tool_use("toolu_2")])
    fork = parent.fork_with("started", "Look left.")
    assert marks(fork) == (2, 4, 8, 9)
    assert marks(fork) == (2, 4, 8, 9)
    answer(fork)
    fork.append("assistant", [text("left")])
    fork.append("user", [text("on")])
    assert marks(fork) == (2, 4, 9, 11)
    assert parent.marks.previous == 4


def test_helper_marks_end_of_parent_and_never_its_own() -> None:
    parent = begun()
    parent.append("assistant", [text("a")])
    parent.append("user", [text("b")])
    answer(parent)
    parent.append("assistant", [tool_use("toolu_1")])
    helper = parent.fork_with("not run", "Write notes.")
    assert marks(helper, helper=True) == (2, 4, 6)
    helper.sent(helper.render(max_tokens=1, helper=True))
    helper.append("assistant", [text("noted")])
    helper.append("user", [text("more")])
    assert marks(helper, helper=True) == (2, 4, 6)


def ttls(conversation: Conversation, ttl: CacheTtls) -> list[str]:
    body = json.loads(conversation.render(max_tokens=1, ttl=ttl).body)
    found: list[dict[str, Any]] = [*body.get("tools", []), *body.get("system", [])]
    found += [block for message in body["messages"] for block in message["content"]]
    return [block["cache_control"].get("ttl", "5m") for block in found if "cache_control" in block]


def test_early_markers_can_have_ttl_of_an_hour() -> None:
    conversation = begun()
    answer(conversation)
    conversation.append("user", [text("more")])
    assert ttls(conversation, CacheTtls(system="1h", context="1h")) == ["1h", "1h", "5m"]
    assert ttls(conversation, CacheTtls(system="1h")) == ["1h", "5m", "5m"]


def test_marker_never_outlives_earlier_one() -> None:
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
