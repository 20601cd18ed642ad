"""Search for processes of a session by their environment, also during an exec."""

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
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{thread.native_id}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []  # it has ended


@pytest.mark.slow
def test_process_in_execve_is_not_mistaken_for_one_outside_the_session() -> None:
    """During an exec the kernel shows an empty environment; the search must not skip the process."""
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
