"""Sweepers of one mailbox are killed while they work: every message is dead-lettered exactly once."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from coterie.clock import Clock
from coterie.mailbox.dead_letters import DEAD_LETTERS_FILE, DeadLetters
from coterie.mailbox.roster import LocalRoster
from coterie.mailbox.transports.abandoned_mail import dead_letter_abandoned
from coterie.mailbox.transports.file.transport import FileTransport
from tests.mailbox.file_mail import envelope

pytestmark = pytest.mark.slow

LETTERS = 2_000
KILLS = 6
LOOK_EVERY = 0.001
SWEEPER = """
import sys
from pathlib import Path
import trio
from tests.processes.test_abandoned_mail_processes import sweep

trio.run(sweep, Path(sys.argv[1]))
"""


def open_mail(root: Path, roster: LocalRoster) -> tuple[FileTransport, DeadLetters]:
    """Open the mail below *root* and its dead letters."""
    dead = DeadLetters(root / "mail" / "dead")
    return FileTransport(root / "mail", roster, None, Clock(), dead.add, segment_bytes=64 * 1024), dead


async def sweep(root: Path) -> int:
    """Dead-letter the mail of ada, who is on no roster."""
    return await dead_letter_abandoned(*open_mail(root, LocalRoster()), "ada")


@contextmanager
def sweeper(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that sweeps; it is killed when the block ends."""
    with subprocess.Popen([sys.executable, "-c", SWEEPER, str(root)], cwd=Path(__file__).parents[2]) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_growth(log: Path, size: int, process: subprocess.Popen[bytes]) -> None:
    """Return when *log* has grown by *size* bytes, or the process that writes it has ended."""
    end = size_of(log) + size
    while process.poll() is None and size_of(log) < end:
        time.sleep(LOOK_EVERY)


def size_of(log: Path) -> int:
    return log.stat().st_size if log.exists() else 0


async def fill(mail: FileTransport) -> None:
    for sequence in range(LETTERS):
        await mail.send(envelope(sequence))
    mail.close()


@pytest.mark.timeout(60)
def test_killed_sweepers_lose_and_duplicate_no_dead_letter(tmp_path: Path) -> None:
    dice, roster = random.Random(3), LocalRoster()
    roster.join("ada")
    mail, dead = open_mail(tmp_path, roster)
    trio.run(fill, mail)
    killed = 0
    for _ in range(KILLS):
        with sweeper(tmp_path) as process:
            wait_for_growth(dead.directory / DEAD_LETTERS_FILE, dice.randrange(1, 100_000), process)
            killed += process.poll() is None
    assert killed, "on a busy machine one or another may have been too quick for us"
    trio.run(sweep, tmp_path)
    found = [letter.envelope.sequence for _, letter in dead.pending() if letter.envelope is not None]
    assert found == list(range(LETTERS))
