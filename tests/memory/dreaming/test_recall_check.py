"""Recall of past queries before and after a dream."""

from pathlib import Path

import pytest

from coterie.memory.dreaming.recall_check import compare_recall
from coterie.memory.layer_settings import DeletionPolicy
from tests.memory.dreaming.manual_dream import ManualDream, topic

FILES = {
    "ann.md": topic("ann", "Ann likes tea. She works in Ghent."),
    "ben.md": topic("ben", "Ben likes coffee."),
    "port.md": topic("port", "The server listens on port 8080."),
}


def test_merged_memory_is_found_in_its_new_file(tmp_path: Path) -> None:
    asleep = ManualDream.of(tmp_path, FILES)
    asleep.write("people.md", topic("people", "Ben likes coffee. Ann likes tea. She works in Ghent."))
    asleep.write("ann.md", "")
    asleep.write("ben.md", "")
    asleep.propose()
    tested = compare_recall(asleep.copied, ["who likes tea?", "which port does the server have?"])
    assert (tested.queries, tested.share, tested.lost) == (2, 0.0, ())
    assert tested.found == tested.kept >= 2


@pytest.mark.parametrize("deletions", ["apply", "ask"])
def test_deleted_memory_is_not_found(tmp_path: Path, deletions: DeletionPolicy) -> None:
    """Waiting hunks are tested as if approved."""
    asleep = ManualDream.of(tmp_path, FILES)
    asleep.write("port.md", "")
    proposal = asleep.propose(deletions=deletions)
    tested = compare_recall(asleep.copied, ["which port does the server have?"])
    assert tested.lost == ("which port does the server have? -> port.md",)
    assert tested.share > 0.1
    held = proposal.add_recall_test(tested)
    assert held.change.held is not None
    assert not held.chosen
