"""Root with a real agent for the tests of the doctor, in a separate process: `PROJECT FIFO`."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import trio

from coterie.clock import Clock
from coterie.orchestrator.session.root_lock import find_root, open_root_record
from tests.processes.root_harness import open_root_harness

SCRIPT = """
scout: [{tools: [{Bash: {command: "setsid sh -c 'echo $$ > %s; exec sleep 1000'"}}]}]
"""


async def run(project: Path, fifo: str) -> None:
    """Run an agent whose shell writes its pid to *fifo* and stays alive."""
    os.open(fifo, os.O_RDWR)  # keeps the reader from blocking forever if this process ends too early
    async with open_root_harness(project, SCRIPT % fifo) as tree:
        with ExitStack() as stack:
            if find_root(tree.session) is None:
                stack.enter_context(open_root_record(tree.session, Clock()))
            await tree.supervisor.run_agent(tree.agent_run("scout"))


if __name__ == "__main__":
    trio.run(run, Path(sys.argv[1]), sys.argv[2])
