"""When memories are taken from a conversation, and from which part of it."""

from typing import Any

import pytest

from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.memory.compaction.cut_point import split_messages
from coterie.memory.extraction.extraction_schedule import ExtractionSchedule, agent_already_wrote, count_unread
from coterie.memory.store.change import Author, MemoryChange

WRITER = Author(by="agent", agent="main", session="s", turn=9)


def test_it_is_time_after_so_many_loops_with_a_turn_that_was_not_looked_at() -> None:
    schedule = ExtractionSchedule(every=2)
    assert not schedule.after_run().is_due(turn=2)
    schedule = schedule.after_run().after_run()
    assert schedule.is_due(turn=2)
    assert not schedule.after_extraction(2).is_due(turn=2)
    assert not schedule.after_start().is_due(turn=2)


def test_what_was_looked_at_stays_looked_at() -> None:
    assert ExtractionSchedule(every=1, cursor=5).after_extraction(3).cursor == 5


@pytest.mark.parametrize(("turns", "count"), [(0, 0), (1, 2), (2, 4), (3, 6), (9, 6)])
def test_the_unread_are_the_messages_of_the_last_turns(turns: int, count: int) -> None:
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
        ({"turn": 3}, False),
        ({"by": "extraction"}, False),
        ({"by": "user"}, False),
        ({"agent": "scout"}, False),
        ({"session": "t"}, False),
    ],
)
def test_only_what_the_agent_itself_wrote_since_counts_as_its_own(author: dict[str, Any], is_own: bool) -> None:
    facts = {"by": "agent", "agent": "main", "session": "s", "turn": 4, **author}
    change = MemoryChange(id="1", at=0.0, author=Author(**facts), path="a.md", before=None, after=b"x")
    assert agent_already_wrote([change], WRITER, cursor=4) == is_own
