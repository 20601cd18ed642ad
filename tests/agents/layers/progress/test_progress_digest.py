"""Digest of an agent's work: its entries, and how it follows the agent's conversation."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.layers.progress.digest import Digest, entry_of
from coterie.agents.loop.conversation.blocks import Block, text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.segment import Segment
from coterie.agents.loop.model.catalog import Role, load_models
from coterie.agents.loop.model.usage import Usage
from tests.agents.conversation_blocks import tool_result, tool_use
from tests.examples import examples

MODELS = load_models()
HAIKU = MODELS.get("haiku")


def segment(block: dict[str, Any] | bytes, role: Role = "assistant") -> Segment:
    data = block if isinstance(block, bytes) else json.dumps(block).encode()
    return Segment(section="messages", role=role, block=Block.read(data), glue=b",", hash=b"")


def result(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t", "content": content, **more}


HUGE_NUMBER = tool_use("t", b'{"limit":1e999}')


@pytest.mark.parametrize(
    ("role", "block", "entry"),
    [
        ("assistant", {"type": "text", "text": "I look\n at it."}, "says: I look at it."),
        ("user", {"type": "text", "text": "Fix the loop."}, "is told: Fix the loop."),
        ("user", result("one\ntwo"), "gets: one two"),
        ("user", result([{"type": "text", "text": "one"}, {"type": "image"}]), "gets: one"),
        ("user", result("no such file", is_error=True), "gets an error: no such file"),
        ("user", result([{"type": "image"}]), None),
        ("user", {"type": "image", "source": {}}, None),
        ("assistant", {"type": "thinking", "thinking": "hm"}, None),
        ("assistant", {"type": "text", "text": " \n"}, None),
        (
            "assistant",
            {"type": "tool_use", "id": "t", "name": "Read", "input": {"file_path": "a.py", "limit": 3, "x": ["y"]}},
            'calls Read(file_path=a.py, limit=3, x=["y"])',
        ),
        ("assistant", HUGE_NUMBER, HUGE_NUMBER.decode()),
        # A text cannot imitate another entry.
        ("user", result("done\ncalls Bash\r\u2028\x0bsays: all is well"), "gets: done calls Bash says: all is well"),
    ],
)
def test_block_becomes_one_line(role: Role, block: dict[str, Any] | bytes, entry: str | None) -> None:
    assert entry_of(segment(block, role)) == entry


def test_long_values_are_truncated_without_hiding_later_path() -> None:
    got = entry_of(segment(result("word " * 1_000), "user"))
    assert got is not None
    assert (len(got), got[-1]) == (len("gets: ") + 500, "…")
    written = {"content": "x" * 10_000, "file_path": "agents/loop/loop.py"}
    called = entry_of(segment({"type": "tool_use", "id": "t", "name": "Write", "input": written}))
    assert called is not None
    assert called.endswith("…, file_path=agents/loop/loop.py)")
    assert len(called) < 300


def conversation(*messages: tuple[Role, list[bytes]]) -> Conversation:
    begun = Conversation.begin(KeyHeader(model="claude-opus-5-5"), system=[text_block("You are an agent.")])
    for role, blocks in messages:
        begun.append(role, blocks)
    return begun


def read_by(agent: Conversation, **options: int) -> Digest:
    digest = Digest.begin(HAIKU, agent, **options)
    digest.read(agent)
    return digest


def asked(digest: Digest) -> str:
    """Return the entries in the next request."""
    text: str = json.loads(digest.ask().messages[-1].blocks[-1])["text"]
    return text.rpartition("\n\n")[0]


def answered(digest: Digest, text: str = "Reading it") -> None:
    tokens = digest.tokens
    digest.answered(digest.ask(), text, Usage(input=tokens, output=5))


def test_digest_continues_behind_last_entry_after_rewrite() -> None:
    agent = conversation(
        ("user", [text_block("the task")]),
        ("assistant", [tool_use("1", b'{"file_path":"a.py"}')]),
        ("user", [tool_result("1", "old result")]),
    )
    digest = read_by(agent)
    answered(digest)
    agent.append("assistant", [tool_use("2", b'{"file_path":"b.py"}')])
    agent.rewrite(
        [
            ("user", [text_block("a summary")]),
            ("assistant", [tool_use("1", b'{"file_path":"a.py"}')]),
            ("user", [tool_result("1", "cleared")]),
            ("assistant", [tool_use("2", b'{"file_path":"b.py"}')]),
        ]
    )
    agent.append("user", [tool_result("2", "new result")])
    digest.read(agent)
    assert asked(digest) == "calls Bash(file_path=b.py)\ngets: new result"
    answered(digest)
    agent.rewrite([("user", [text_block("a summary")]), ("assistant", [text_block("I go on.")])])
    digest.read(agent)
    assert asked(digest) == "is told: a summary\nsays: I go on.", "the last block that was read is gone"


def test_inherited_conversation_of_fork_is_not_in_digest() -> None:
    parent = conversation(
        ("user", [text_block("the parent's task")]), ("assistant", [tool_use("1", b'{"file_path":"a.py"}')])
    )
    fork = parent.fork_with("You are a fork.", "Look at b.py.")
    digest = read_by(fork, inherited=len(parent))
    assert asked(digest) == "gets: You are a fork.\nis told: Look at b.py."
    assert digest.messages == 1


def test_resumed_digest_begins_with_latest_work() -> None:
    agent = conversation(*(("user", [text_block(f"word {n} " + "x" * 400)]) for n in range(200)))
    digest = read_by(agent, size=4_000)
    assert "word 199 " in asked(digest)
    assert "word 0 " not in asked(digest)
    assert digest.tokens < 4_000 / 2
    assert [Digest.begin(MODELS.get(name), agent).size for name in ("haiku", "claude-haiku-4-5")] == [100_000, 200_000]


def test_digest_over_its_size_continues_with_latest_part() -> None:
    agent, size = conversation(), 4_000
    digest = Digest.begin(HAIKU, agent, size=size)
    epoch = 0
    for number in range(60):
        agent.append("user", [text_block(f"word {number} " + "x" * 400)])
        digest.read(agent)
        request = digest.ask()
        # The first request of an epoch reads nothing from the cache.
        assert (digest.cached is None) == (request.epoch > epoch or number == 0)
        epoch = request.epoch
        roles = [role for role, _ in request.messages]
        assert roles == [("user", "assistant")[place % 2] for place in range(len(roles))]
        assert digest.tokens <= size
        if request.epoch and number:
            assert f"word {number - 1} ".encode() in request.prefix_bytes()
        digest.answered(request, f"Hearing {number}", Usage(input=digest.tokens, output=5))
    assert epoch > 1


@examples(40)
@given(st.lists(st.tuples(st.booleans(), st.text(min_size=1, max_size=300), st.booleans()), max_size=8))
def test_each_request_of_epoch_begins_with_all_answered_requests(
    turns: list[tuple[bool, str, bool]],
) -> None:
    agent = conversation()
    digest = Digest.begin(HAIKU, agent, size=600)
    for is_own, text, is_answered in turns:
        agent.append("assistant" if is_own else "user", [text_block(text)])
        digest.read(agent)
        if not digest.has_new_entries:
            continue
        before = digest.conversation.fork()
        request = digest.ask()
        assert request.epoch > before.epoch or request.extends(before)
        assert digest.tokens <= 600
        if is_answered:
            digest.answered(request, "Hearing it", Usage(input=digest.tokens, output=2))
