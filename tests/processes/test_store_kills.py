"""Processes that write into one store are killed at random: no update is lost, and index and history are correct."""

import random
from collections import Counter
from pathlib import Path

import pytest

from coterie.memory.store.change import Author
from coterie.memory.store.memory_index import index_lines
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.undo import replay
from tests.processes import store_worker
from tests.processes.kill_run import KillRun, whole_lines
from tests.processes.store_worker import COUNTER, counts, memory
from tests.record_property import RecordProperty


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_store_survives_the_killing_of_its_writers(tmp_path: Path, record_property: RecordProperty) -> None:
    record_property("counted", kill_writers(tmp_path, memories=25, kills=6, patience=50))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_writers_of_a_thousand_memories_each_lose_nothing(tmp_path: Path, record_property: RecordProperty) -> None:
    record_property("counted", kill_writers(tmp_path, memories=1000, kills=120, patience=1700))


def kill_writers(root: Path, *, memories: int, kills: int, patience: float) -> str:
    """Kill writers of *memories* each until all have their receipts, check the store, and return the counts."""
    names = [f"writer{number}" for number in range(8)]
    workers = {name: (store_worker.__name__, "write", str(root), name, str(memories)) for name in names}
    run = KillRun(workers, kills, random.Random(7))

    def share_done() -> float:
        return sum(len(whole_lines(root / f"{name}.receipts")) for name in names) / (len(names) * memories)

    run.run(share_done, patience)
    assert len(run.killed) == kills
    return f"{check(MemoryStore.at(root / 'store'), root, names, memories)}, {len(run.killed)} kills"


def check(store: MemoryStore, root: Path, names: list[str], memories: int) -> str:
    """Compare the store with the receipts, its index and its history; return the counts."""
    # The last killed writer may have left an incomplete change, which the next writer completes.
    store.write("last.md", b"done\n", Author(by="user"), base=None)
    receipts = [path for name in names for path in whole_lines(root / f"{name}.receipts")]
    files = {path: content for path in store.paths() if (content := store.read(path)) is not None}
    assert sorted(files) == sorted({*receipts, COUNTER, "last.md"})
    for path in receipts:
        name, _, number = path.removesuffix(".md").rpartition("_")
        assert files[path] == memory(name, int(number)), path
    assert counts(files[COUNTER]) == dict.fromkeys(names, memories)
    assert Counter(entry.path for entry in index_lines(store.index())) == Counter(files.keys())
    changes = store.changes()
    assert replay(store.batches()) == {**files, INDEX: store.index().encode()}
    ids = [int(change.id) for change in changes]
    assert ids == list(range(1, len(ids) + 1))
    assert {change.author.by for change in changes} == {"agent", "user"}
    return f"{len(files)} memories of {len(names)} writers, {len(receipts)} receipts, {len(changes)} changes"
