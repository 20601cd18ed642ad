"""A root in the tests of starting, as a process of its own: `plain|warm|poor`."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import trio

from coterie.orchestrator.starting import PlainStarter, Start, Starter, StartFailed, WarmStarter, open_warm_starter
from tests.processes import started


def make_start(entry: str, payload: bytes = b"", directory: Path = Path("/"), **environment: str) -> Start:
    """A child that runs an entry of `tests.processes.started`."""
    return Start(
        title="coterie tester",
        entry=f"{started.__name__}:{entry}",
        payload=payload,
        directory=directory,
        environment={**os.environ, **environment},
    )


@asynccontextmanager
async def open_starter(way: str) -> AsyncIterator[Starter]:
    """One of the two; the zygote knows what the tests start, and not the SDK."""
    if way == "plain":
        yield PlainStarter()
    else:
        async with open_warm_starter([started.__name__]) as warm:
            yield warm


async def run(way: str) -> None:
    """Start three children, tell the numbers of all processes, and stay."""
    async with open_starter(way) as starter:
        pids = [(await starter.start(make_start("stay"))).pid for _ in range(3)]
        if isinstance(starter, WarmStarter):
            assert starter.zygote is not None
            pids.append(starter.zygote)
        tell(pids)
        await trio.sleep_forever()


async def run_poor() -> None:
    """Try to start a child where no process may be added, and tell what came of it."""
    started.allow_one_process()
    try:
        await PlainStarter().start(make_start("echo"))
    except StartFailed as failed:
        tell(failed.errno)


def tell(what: object) -> None:
    """One line, which the test waits for."""
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "poor":
        trio.run(run_poor)
    else:
        trio.run(run, sys.argv[1])
