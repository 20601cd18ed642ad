"""Process that writes memories until it is killed; its receipts are in a file that the test checks.

`python -m tests.processes.store_worker write ROOT NAME COUNT`: writes new memories, and a shared counter.
`python -m tests.processes.store_worker swap STORE OUTSIDE`: replaces files and directories by links.
"""

import contextlib
import json
import os
import sys
from pathlib import Path

from coterie.memory.errors import BaseChanged
from coterie.memory.store.change import Author
from coterie.memory.store.memory_store import MemoryStore
from tests.processes.kill_run import whole_lines

COUNTER = "counter.md"


def memory(name: str, number: int) -> bytes:
    """Return the deterministic content of the memory with this number."""
    body = "\n".join(f"line {line} of {number}" for line in range(number * 7 % 23))
    return f"---\nname: {name} {number}\ndescription: what {name} knows of {number}\n---\n{body}\n".encode()


def counts(content: bytes | None) -> dict[str, int]:
    """Return the counter of each writer."""
    counted: dict[str, int] = json.loads((content or b"{}").decode().rpartition("\n\n")[2] or "{}")
    return counted


def write(root: Path, name: str, count: int) -> None:
    """Write up to *count* memories, from the first without a receipt, and count each in the counter."""
    store, author = MemoryStore.at(root / "store"), Author(by="agent", agent=name, why="torture")
    receipts = root / f"{name}.receipts"
    begun = len(whole_lines(receipts))
    log = os.open(receipts, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in range(begun + 1, count + 1):
        path = f"{name}_{number}.md"
        # If killed before its receipt, it may have been written; then it must be complete.
        with contextlib.suppress(BaseChanged):
            store.write(path, memory(name, number), author, base=None)
        assert store.read(path) == memory(name, number)
        increment(store, author, name, number)
        os.write(log, f"{path}\n".encode())


def increment(store: MemoryStore, author: Author, name: str, number: int) -> None:
    """Add *number* to the counter, with retries, because others change it all the time."""
    while True:
        base = store.read(COUNTER)
        counted = counts(base)
        if counted.get(name, 0) >= number:
            return
        assert counted.get(name, 0) == number - 1, f"{name} counted {counted} before {number}"
        content = f"# How far everybody is\n\n{json.dumps({**counted, name: number})}".encode()
        with contextlib.suppress(BaseChanged):
            store.write(COUNTER, content, author, base=base)
            return


def swap(store: Path, outside: Path) -> None:
    """Replace a file and a directory by links and restore them, forever."""
    while True:
        for name, target in (("victim.md", outside / "victim.md"), ("sub", outside)):
            aside = store / f"{name}.aside"
            with contextlib.suppress(OSError):
                (store / name).rename(aside)
            with contextlib.suppress(OSError):
                (store / name).symlink_to(target)
            with contextlib.suppress(OSError):
                (store / name).unlink()
            with contextlib.suppress(OSError):
                aside.rename(store / name)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        swap(Path(sys.argv[2]), Path(sys.argv[3]))
