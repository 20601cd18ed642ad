"""Processes that write mail and memories are killed at random: nothing is lost, duplicated or reordered."""

import random
from collections import Counter
from pathlib import Path

import pytest
import trio

from coterie.mailbox.dead_letters import DEAD_LETTERS_FILE, DeadLetters
from coterie.mailbox.roster import LocalRoster
from coterie.memory.store.change import Author
from coterie.memory.store.memory_index import index_lines
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.path_rules import INDEX
from coterie.memory.store.undo import replay
from tests.mailbox.file_mail import envelope
from tests.processes import mail_worker, store_worker
from tests.processes.kill_run import KillRun, whole_lines
from tests.processes.store_worker import COUNTER, counts, memory
from tests.record_property import RecordProperty

LETTERS = 2_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("writers", "messages", "kills"),
    [(4, 3000, 12), pytest.param(8, 100_000, 300, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])],
)
def test_mail_survives_random_kills(
    tmp_path: Path, record_property: RecordProperty, writers: int, messages: int, kills: int
) -> None:
    """Each receipt of a writer holds, and no message is duplicated or reordered."""
    names = [f"writer{number}" for number in range(writers)]
    share = str(messages // writers)
    workers = {name: [mail_worker.__name__, "write", str(tmp_path), name, share] for name in names}
    workers["reader"] = [mail_worker.__name__, "read", str(tmp_path)]
    run = KillRun(workers, kills, random.Random(writers))
    transcript = tmp_path / "transcript"
    run.run(lambda: transcript.read_bytes().count(b"\n") / messages if transcript.exists() else 0, patience=kills * 4)
    assert len(run.killed) == kills
    record_property(
        "counted", f"{check_mail(tmp_path, names)}, {kills} kills, {run.killed.count('reader')} of the reader"
    )


def check_mail(root: Path, names: list[str]) -> str:
    """Compare the transcript with the receipts, and return the counts."""
    arrived = [tuple(line.split()) for line in whole_lines(root / "transcript")]
    receipts = {(name, sequence) for name in names for sequence in whole_lines(root / f"{name}.receipts")}
    lost = receipts - {(name, sequence) for name, sequence, _ in arrived}
    doubled = [id_ for id_, times in Counter(id_ for _, _, id_ in arrived).items() if times > 1]
    assert not lost, f"lost: {sorted(lost)[:5]}"
    assert not doubled, f"twice: {doubled[:5]}"
    for name in names:
        order = [int(sequence) for sender, sequence, _ in arrived if sender == name]
        assert order == list(range(1, len(order) + 1)), f"{name} is out of order"
    torn = DeadLetters(root / "mail" / "dead").pending()
    assert {letter.reason for _, letter in torn} <= {"corrupt"}
    return f"{len(arrived)} messages of {len(names)} writers, {len(receipts)} receipts, {len(torn)} torn"


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_killed_sweepers_lose_and_duplicate_no_dead_letter(tmp_path: Path) -> None:
    """Each message of an abandoned mailbox is dead-lettered exactly once."""
    roster = LocalRoster()
    roster.join("ada")
    mail, dead = mail_worker.open_abandoned_mail(tmp_path, roster)

    async def fill() -> None:
        for sequence in range(LETTERS):
            await mail.send(envelope(sequence))
        mail.close()

    trio.run(fill)
    log = dead.directory / DEAD_LETTERS_FILE
    run = KillRun({"sweeper": [mail_worker.__name__, "sweep", str(tmp_path)]}, 6, random.Random(3))
    run.run(lambda: log.read_bytes().count(b"\n") / LETTERS if log.exists() else 0, patience=50)
    assert run.killed
    trio.run(mail_worker.sweep, tmp_path)
    found = [letter.envelope.sequence for _, letter in dead.pending() if letter.envelope is not None]
    assert found == list(range(LETTERS))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("memories", "kills"),
    [(25, 6), pytest.param(1000, 120, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])],
)
def test_a_store_survives_the_killing_of_its_writers(
    tmp_path: Path, record_property: RecordProperty, memories: int, kills: int
) -> None:
    names = [f"writer{number}" for number in range(8)]
    workers = {name: (store_worker.__name__, "write", str(tmp_path), name, str(memories)) for name in names}
    run = KillRun(workers, kills, random.Random(7))

    def share_done() -> float:
        return sum(len(whole_lines(tmp_path / f"{name}.receipts")) for name in names) / (len(names) * memories)

    run.run(share_done, patience=kills * 9)
    assert len(run.killed) == kills
    store = MemoryStore.at(tmp_path / "store")
    record_property("counted", f"{check_store(store, tmp_path, names, memories)}, {kills} kills")


def check_store(store: MemoryStore, root: Path, names: list[str], memories: int) -> str:
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
