"""Descendants of this process, read from /proc."""

import os
from collections.abc import Iterator
from pathlib import Path

import attrs
import psutil

PROC = Path("/proc")
START_TIME = 19
"""Index of the start time among the fields of /proc/PID/stat after the name."""


@attrs.frozen
class Descendant:
    """A process, identified by its pid and start time, because pids are reused."""

    pid: int
    started: float
    """Clock ticks or seconds, depending on the source; only compared with other values of the same source."""
    name: str = attrs.field(eq=False)

    def __str__(self) -> str:
        """Pid and command line; for a zombie, which has no command line, its name."""
        try:
            command = Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            command = ""
        return f"{self.pid} {command.strip() or self.name}"


def descendants() -> set[Descendant]:
    """Return all descendants of this process that have living parents, zombies included.

    Asks psutil, which reads every process of the machine, only on a kernel without CONFIG_PROC_CHILDREN.
    """
    own = os.getpid()
    if not (PROC / f"{own}/task/{own}/children").exists():
        return set(_by_psutil())
    found: set[Descendant] = set()
    parents = [own]
    while parents:
        for child in _children(parents.pop()):
            try:
                found.add(_describe(child))
            except OSError:
                continue  # the process was reaped
            parents.append(child)
    return found


def _children(pid: int) -> list[int]:
    """Return the children of *pid*; each thread lists those that it started."""
    numbers: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - runs twice in every test
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123 - the same
                numbers += map(int, file.read().split())
    except OSError:
        pass  # the process or one of its threads has ended, so its children have another parent
    return numbers


def _describe(pid: int) -> Descendant:
    """Read one process. Raises `OSError` if it has been reaped."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - the same
        head, _, fields = file.read().rpartition(")")
    return Descendant(pid, float(fields.split()[START_TIME]), head.partition("(")[2])


def _by_psutil() -> Iterator[Descendant]:
    for child in psutil.Process().children(recursive=True):
        try:
            yield Descendant(child.pid, child.create_time(), child.name())
        except psutil.NoSuchProcess:
            continue
