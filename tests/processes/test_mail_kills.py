"""Processes that send and read are killed at random: every receipt holds, and no message is duplicated or reordered."""

import random
from collections import Counter
from pathlib import Path

import pytest

from coterie.mailbox.dead_letters import DeadLetters
from tests.processes import mail_worker
from tests.processes.kill_run import KillRun, whole_lines
from tests.record_property import RecordProperty


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_mail_survives_random_kills(tmp_path: Path, record_property: RecordProperty) -> None:
    record_property("counted", kill_writers_and_reader(tmp_path, writers=4, messages=3000, kills=12, patience=40))


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_mail_survives_three_hundred_kills(tmp_path: Path, record_property: RecordProperty) -> None:
    counts = kill_writers_and_reader(tmp_path, writers=8, messages=100_000, kills=300, patience=1700)
    record_property("counted", counts)


def kill_writers_and_reader(root: Path, *, writers: int, messages: int, kills: int, patience: float) -> str:
    """Kill writers and one reader until all messages have arrived, check the result, and return the counts."""
    names = [f"writer{number}" for number in range(writers)]
    share = str(messages // writers)
    workers = {name: [mail_worker.__name__, "write", str(root), name, share] for name in names}
    workers["reader"] = [mail_worker.__name__, "read", str(root)]
    run = KillRun(workers, kills, random.Random(writers))
    transcript = root / "transcript"
    run.run(lambda: transcript.read_bytes().count(b"\n") / messages if transcript.exists() else 0, patience)
    assert len(run.killed) == kills
    counts = check(root, names)
    return f"{counts}, {len(run.killed)} kills, {run.killed.count('reader')} of them of the reader"


def check(root: Path, names: list[str]) -> str:
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
