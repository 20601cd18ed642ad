"""Root for the tests of process starters, in a separate process: `plain|warm|poor`."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio

from coterie.orchestrator.processes.process_start import ProcessStart, ProcessStarter, StartFailed
from coterie.orchestrator.processes.process_starters import ExecStarter, ZygoteStarter, open_zygote_starter
from tests.processes import child_entries


def make_start(entry: str, payload: bytes = b"", directory: Path = Path("/"), **environment: str) -> ProcessStart:
    """Return the start of a child with an entry of `tests.processes.child_entries`."""
    return ProcessStart(
        title="coterie tester",
        entry=f"{child_entries.__name__}:{entry}",
        payload=payload,
        directory=directory,
        environment={**os.environ, **environment},
    )


@asynccontextmanager
async def open_starter(way: str) -> AsyncIterator[ProcessStarter]:
    """Open one of the starters; the zygote imports the test entries, but not the SDK."""
    if way == "plain":
        yield ExecStarter()
    else:
        async with open_zygote_starter([child_entries.__name__]) as warm:
            yield warm


async def run(way: str) -> None:
    """Start three children, print the pids of all processes, and stay alive."""
    async with open_starter(way) as starter:
        pids = [(await starter.start(make_start("stay"))).pid for _ in range(3)]
        if isinstance(starter, ZygoteStarter):
            assert starter.zygote is not None
            pids.append(starter.zygote)
        print_line(pids)
        await trio.sleep_forever()


async def run_poor() -> None:
    """Try to start a child at the process limit, and print the result."""
    child_entries.allow_one_process()
    try:
        await ExecStarter().start(make_start("echo"))
    except StartFailed as failed:
        print_line(failed.errno)


def print_line(what: object) -> None:
    """Print one line, which the test waits for."""
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "poor":
        trio.run(run_poor)
    else:
        trio.run(run, sys.argv[1])
