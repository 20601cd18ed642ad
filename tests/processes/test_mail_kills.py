"""Processes that send and read are killed at random: every receipt holds, and no message is duplicated or reordered."""

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import attrs
import pytest

from coterie.mailbox.dead_letters import DeadLetters
from tests.processes.mail_worker import make_transport, whole_lines
from tests.record_property import RecordProperty

ROOT = Path(__file__).parents[2]
LOOK_EVERY = 0.005


@attrs.define(eq=False)
class MailKillRun:
    """Writers and one reader; a killed process is started again."""

    root: Path
    writers: int
    messages: int
    kills: int
    random: random.Random
    children: dict[str, subprocess.Popen[bytes]] = attrs.field(factory=dict)
    killed: Counter[str] = attrs.field(factory=Counter)

    @property
    def names(self) -> list[str]:
        """Receipts of the writers."""
        return [f"writer{number}" for number in range(self.writers)]

    def run(self, patience: float) -> None:
        """Return when all messages have arrived."""
        deadline = time.monotonic() + patience
        try:
            for name in ("reader", *self.names):
                self.start(name)
            while (arrived := self.count("transcript")) < self.messages:
                assert time.monotonic() < deadline, f"{arrived} of {self.messages} after {patience} s"
                self.kill_and_restart((arrived + sum(self.count(f"{name}.receipts") for name in self.names)) / 2)
                time.sleep(LOOK_EVERY)
        finally:
            for child in self.children.values():
                child.kill()
                child.wait()

    def count(self, log: str) -> int:
        """Return the complete lines of a log."""
        path = self.root / log
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def kill_and_restart(self, done: float) -> None:
        """Kill a process if it is time, and restart processes that ended before their work was done."""
        if self.killed.total() < min(self.kills, done * (self.kills + 2) / self.messages):
            alive = [name for name, child in self.children.items() if child.poll() is None]
            victim = self.random.choice(alive)
            self.children[victim].kill()
            self.killed["reader" if victim == "reader" else "writer"] += 1
        for name, child in self.children.items():
            if child.poll() not in (None, 0):
                assert child.returncode == -9, f"{name} ended with {child.returncode}"
                self.start(name)

    def start(self, name: str) -> None:
        """Start or restart one of them."""
        share = str(self.messages // self.writers)
        arguments = ["read", str(self.root)] if name == "reader" else ["write", str(self.root), name, share]
        command = [sys.executable, "-m", "tests.processes.mail_worker", *arguments]
        self.children[name] = subprocess.Popen(command, cwd=ROOT)

    def check(self) -> str:
        """Compare the transcript with the receipts, and return the counts."""
        arrived = [tuple(line.split()) for line in whole_lines(self.root / "transcript")]
        receipts = {(name, sequence) for name in self.names for sequence in whole_lines(self.root / f"{name}.receipts")}
        lost = receipts - {(name, sequence) for name, sequence, _ in arrived}
        doubled = [id_ for id_, times in Counter(id_ for _, _, id_ in arrived).items() if times > 1]
        assert not lost, f"lost: {sorted(lost)[:5]}"
        assert not doubled, f"twice: {doubled[:5]}"
        for name in self.names:
            order = [int(sequence) for sender, sequence, _ in arrived if sender == name]
            assert order == list(range(1, len(order) + 1)), f"{name} is out of order"
        torn = DeadLetters(self.root / "mail" / "dead").pending()
        assert {letter.reason for _, letter in torn} <= {"corrupt"}
        return (
            f"{len(arrived)} messages of {self.writers} writers, {len(receipts)} receipts, "
            f"{self.killed['writer']} writers and {self.killed['reader']} readers killed, {len(torn)} torn, "
            f"{make_transport(self.root).backlog('reader').messages} not yet acknowledged"
        )


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_mail_survives_random_kills(tmp_path: Path, record_property: RecordProperty) -> None:
    torture = MailKillRun(root=tmp_path, writers=4, messages=3000, kills=12, random=random.Random(4))
    torture.run(patience=40)
    record_property("counted", torture.check())
    assert torture.killed.total() == 12


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_mail_survives_three_hundred_kills(tmp_path: Path, record_property: RecordProperty) -> None:
    torture = MailKillRun(root=tmp_path, writers=8, messages=100_000, kills=300, random=random.Random(8))
    torture.run(patience=1700)
    record_property("counted", torture.check())
    assert torture.killed.total() == 300
