"""Processes that dream until they are killed; the test checks what remains.

`python -m tests.processes.dream_worker DIRECTORY FIRST STEP` runs dreams in consecutive processes, each in its own
directory: the first is killed after FIRST writes of files, the next STEP writes later, until one completes. It prints a
line for each with its number and result.
"""

import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.layers.layer6_dreaming.dream_run import Dreamer
from coterie.agents.runtime.setup.built_in_tools import BUILT_IN
from coterie.clock import Clock
from coterie.files import Operation, file_faults
from coterie.memory.dreaming.dream_lock import LOCK
from coterie.memory.layer_settings import DreamingSettings
from coterie.memory.store.change import Author
from coterie.memory.store.memory_store import MemoryStore
from tests.agents.scripted_agent import open_agent

LAST = 5_000.0
"""Time of the last dream."""
BEFORE = {"ann.md": "Ann likes tea.\n", "ben.md": "Ben likes coffee.\n"}
AFTER = {"people.md": "Ann likes tea.\n\nBen likes coffee.\n"}


@attrs.define(eq=False)
class Killing:
    """Kills this process, like a crash, before one of its writes."""

    left: int

    def before(self, _operation: Operation, _path: Path, size: int) -> int:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return size


def store_in(directory: Path) -> MemoryStore:
    """Return the store of a test, filled on the first call."""
    store = MemoryStore.at(directory / "memory", Clock())
    if not store.directory.exists():
        for path, text in BEFORE.items():
            store.write(path, text.encode(), Author(by="user"), base=None)
        (store.directory / LOCK).write_text("{}")
        os.utime(store.directory / LOCK, (LAST, LAST))
    return store


async def dream(directory: Path, writes: int) -> None:
    """Merge two memories into one; the process is killed after *writes* writes."""
    copy = directory / "dream" / "memory"
    calls: list[dict[str, Any]] = [{"Read": {"file_path": str(copy / path)}} for path in BEFORE]
    texts = {**dict.fromkeys(BEFORE, ""), **AFTER}
    calls += [{"Write": {"file_path": str(copy / path), "content": text}} for path, text in texts.items()]
    script = [{"purpose": "dream", "tools": calls}, {"purpose": "dream", "text": "Done."}]
    async with open_agent(json.dumps({"default": script}), directory, *BUILT_IN) as (agent, _):
        dreamer = Dreamer(
            agent=agent,
            store=store_in(directory),
            settings=DreamingSettings(),
            author=lambda: Author(by="agent"),
            scratch=directory,
        )
        with file_faults(Killing(writes)):
            await dreamer.dream(())


def kill_each(directory: Path, first: int, step: int) -> None:
    """Run the module. This process has one thread and no event loop when it forks."""
    for writes in itertools.count(first, step):
        place = directory / str(writes)
        place.mkdir()
        pid = os.fork()
        if pid == 0:
            trio.run(dream, place, writes)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(writes, status, flush=True)  # noqa: T201 - the test reads it
        if status != -signal.SIGKILL:
            return


if __name__ == "__main__":
    kill_each(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
