"""The children of this process, and theirs, read from /proc."""

import os
from collections.abc import Iterator
from pathlib import Path

import attrs
import psutil

PROC = Path("/proc")
START_TIME = 19
"""The place of the start time among the fields of /proc/PID/stat that follow the name."""


@attrs.frozen
class Descendant:
    """A process, told apart from a later one with the same number by its start time."""

    pid: int
    started: float
    """Clock ticks or seconds, depending on the source; only compared with other values of the same source."""
    name: str = attrs.field(eq=False)

    def __str__(self) -> str:
        """Its number and its command line; its name alone if it is a zombie, which has none."""
        try:
            command = Path(f"/proc/{self.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            command = ""
        return f"{self.pid} {command.strip() or self.name}"


def descendants() -> set[Descendant]:
    """All processes that descend from this one by living parents, zombies included.

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
                continue  # it has ended and was reaped
            parents.append(child)
    return found


def _children(pid: int) -> list[int]:
    """Each thread of a process lists the children it has started."""
    numbers: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - it runs twice in every test
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123 - the same
                numbers += map(int, file.read().split())
    except OSError:
        pass  # the process or one of its threads has ended, and what it had started has another parent
    return numbers


def _describe(pid: int) -> Descendant:
    """Raises `OSError` if it is gone."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - the same
        head, _, fields = file.read().rpartition(")")
    return Descendant(pid, float(fields.split()[START_TIME]), head.partition("(")[2])


def _by_psutil() -> Iterator[Descendant]:
    for child in psutil.Process().children(recursive=True):
        try:
            yield Descendant(child.pid, child.create_time(), child.name())
        except psutil.NoSuchProcess:
            continue
