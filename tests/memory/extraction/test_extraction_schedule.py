"""When memories are extracted, and from which messages."""

from typing import Any

import pytest

from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.memory.compaction.cut_point import split_messages
from coterie.memory.extraction.extraction_schedule import ExtractionSchedule, agent_already_wrote, count_unread
from coterie.memory.store.change import Author, MemoryChange

WRITER = Author(by="agent", agent="main", session="s", turn=9)


def test_extraction_cursor_never_moves_back() -> None:
    assert ExtractionSchedule(every=1, cursor=5).after_extraction(3).cursor == 5


@pytest.mark.parametrize(("turns", "count"), [(0, 0), (1, 2), (2, 4), (3, 6), (9, 6)])
def test_unread_messages_are_those_of_the_last_turns(turns: int, count: int) -> None:
    conversation = Conversation.begin(KeyHeader(model="m"))
    for number in range(3):
        conversation.append("user", [text_block(f"question {number}")])
        conversation.append("assistant", [text_block(f"answer {number}")])
    assert count_unread(split_messages(conversation.segments), turns) == count


@pytest.mark.parametrize(
    ("author", "is_own"),
    [
        ({"turn": 4}, True),
        ({"turn": None}, True),
        *(({name: other}, False) for name, other in {"turn": 3, "by": "user", "agent": "b", "session": "t"}.items()),
    ],
)
def test_only_own_writes_since_the_cursor_count(author: dict[str, Any], is_own: bool) -> None:
    facts = {"by": "agent", "agent": "main", "session": "s", "turn": 4, **author}
    change = MemoryChange(id="1", at=0.0, author=Author(**facts), path="a.md", before=None, after=b"x")
    assert agent_already_wrote([change], WRITER, cursor=4) == is_own
