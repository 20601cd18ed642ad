"""Processes that write into one store are killed at random: no update is lost, and index and history are correct."""

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import attrs
import pytest

from coterie.memory.store.change import Author
from coterie.memory.store.memory_index import index_lines
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.undo import replay
from tests.processes.store_worker import COUNTER, counts, memory, whole_lines
from tests.record_property import RecordProperty

ROOT = Path(__file__).parents[2]
LOOK_EVERY = 0.005


@attrs.define(eq=False)
class StoreKillRun:
    """Writers; a killed one is started again."""

    root: Path
    writers: int
    memories: int
    """Number of memories for each writer."""
    kills: int
    random: random.Random
    children: dict[str, subprocess.Popen[bytes]] = attrs.field(factory=dict)
    killed: int = 0

    @property
    def names(self) -> list[str]:
        """Receipts of the writers."""
        return [f"writer{number}" for number in range(self.writers)]

    def run(self, patience: float) -> None:
        """Return when all memories have their receipt."""
        deadline = time.monotonic() + patience
        try:
            for name in self.names:
                self.start(name)
            while any(child.poll() != 0 for child in self.children.values()):
                done = sum(len(whole_lines(self.root / f"{name}.receipts")) for name in self.names)
                assert time.monotonic() < deadline, f"{done} after {patience} s"
                self.kill_and_restart(done / (self.writers * self.memories))
                time.sleep(LOOK_EVERY)
        finally:
            for child in self.children.values():
                child.kill()
                child.wait()

    def kill_and_restart(self, done: float) -> None:
        """Kill a writer if it is time, and restart writers that ended before their work was done."""
        alive = [name for name, child in self.children.items() if child.poll() is None]
        if alive and self.killed < min(self.kills, done * (self.kills + 2)):
            self.children[self.random.choice(alive)].kill()
            self.killed += 1
        for name, child in self.children.items():
            if child.poll() not in (None, 0):
                assert child.returncode == -9, f"{name} ended with {child.returncode}"
                self.start(name)

    def start(self, name: str) -> None:
        """Start or restart one of them."""
        arguments = ["write", str(self.root), name, str(self.memories)]
        self.children[name] = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.store_worker", *arguments], cwd=ROOT
        )

    def check(self) -> str:
        """Compare the store with the receipts, its index and its history; return the counts."""
        store = MemoryStore.at(self.root / "store")
        # The last killed writer may have left an incomplete change, which the next writer completes.
        store.write("last.md", b"done\n", Author(by="user"), base=None)
        receipts = [path for name in self.names for path in whole_lines(self.root / f"{name}.receipts")]
        files = {path: content for path in store.paths() if (content := store.read(path)) is not None}
        self._check_files(files, receipts)
        links = Counter(entry.path for entry in index_lines(store.index()))
        assert links == Counter(files.keys())
        changes = store.changes()
        assert replay(store.batches()) == {**files, INDEX: store.index().encode()}
        ids = [int(change.id) for change in changes]
        assert ids == list(range(1, len(ids) + 1))
        assert {change.author.by for change in changes} == {"agent", "user"}
        return (
            f"{len(files)} memories of {self.writers} writers, {len(receipts)} receipts, {self.killed} kills, "
            f"{len(changes)} changes, {len(links)} lines of the index"
        )

    def _check_files(self, files: dict[str, bytes], receipts: list[str]) -> None:
        assert sorted(files) == sorted({*receipts, COUNTER, "last.md"})
        for path in receipts:
            name, _, number = path.removesuffix(".md").rpartition("_")
            assert files[path] == memory(name, int(number)), path
        assert counts(files[COUNTER]) == dict.fromkeys(self.names, self.memories)


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_store_survives_the_killing_of_its_writers(tmp_path: Path, record_property: RecordProperty) -> None:
    torture = StoreKillRun(root=tmp_path, writers=8, memories=25, kills=6, random=random.Random(7))
    torture.run(patience=50)
    record_property("counted", torture.check())
    assert torture.killed == 6


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_eight_writers_of_a_thousand_memories_each_lose_nothing(
    tmp_path: Path, record_property: RecordProperty
) -> None:
    torture = StoreKillRun(root=tmp_path, writers=8, memories=1000, kills=120, random=random.Random(8))
    torture.run(patience=1700)
    record_property("counted", torture.check())
    assert torture.killed == 120
