"""When memories are extracted, and from which messages."""

from typing import Any

import pytest

from coterie.memory.extraction.extraction_schedule import agent_already_wrote
from coterie.memory.store.change import Author, MemoryChange

WRITER = Author(by="agent", agent="main", session="s", turn=9)


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
