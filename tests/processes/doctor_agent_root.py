"""A root with a real agent in the tests of the doctor, as a process of its own: `PROJECT FIFO`."""

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
    """Run an agent whose shell tells its number through *fifo* and stays."""
    os.open(fifo, os.O_RDWR)  # whoever reads hears of it if this process ends too early
    async with open_root_harness(project, SCRIPT % fifo) as tree:
        with ExitStack() as stack:
            if find_root(tree.session) is None:
                stack.enter_context(open_root_record(tree.session, Clock()))
            await tree.supervisor.run_agent(tree.agent_run("scout"))


if __name__ == "__main__":
    trio.run(run, Path(sys.argv[1]), sys.argv[2])
