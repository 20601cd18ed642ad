"""Whose a process is can be told from what it was handed down, except for the moment in which it becomes another."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from coterie.process_identity import read_environment

NAME = "ann#1"
STARTS = 600


def start_many() -> None:
    """One process after another, each with the mark of an agent."""
    environment = {**os.environ, "COTERIE_AGENT": NAME}
    for _ in range(STARTS):
        subprocess.run(["/bin/true"], env=environment, check=True)


def children(thread: threading.Thread) -> list[int]:
    """Those that *thread* has started, and that live."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{thread.native_id}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []  # it has ended


@pytest.mark.slow
def test_process_in_execve_is_not_mistaken_for_one_outside_the_session() -> None:
    """The kernel shows no variables at all for a moment: whoever believed that would leave a command behind."""
    starting = threading.Thread(target=start_many)
    starting.start()
    marked: set[int] = set()
    bare: set[int] = set()
    while starting.is_alive():
        for pid in children(starting):
            handed_down = read_environment(pid)
            if handed_down is not None and handed_down.get("COTERIE_AGENT") == NAME:
                marked.add(pid)
                assert pid not in bare, "it had nothing, and has something now"
            elif handed_down == {}:
                bare.add(pid)
    starting.join()
    assert marked
