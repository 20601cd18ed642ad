"""Processes that send, read and sweep are killed at random: no message is lost, duplicated or reordered."""

import random
from collections import Counter
from pathlib import Path

import pytest
import trio

from coterie.mailbox.dead_letters import DEAD_LETTERS_FILE, DeadLetters
from coterie.mailbox.roster import LocalRoster
from tests.mailbox.file_mail import envelope
from tests.processes import mail_worker
from tests.processes.kill_run import KillRun, whole_lines
from tests.record_property import RecordProperty

LETTERS = 2_000


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
