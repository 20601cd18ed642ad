"""Root in a separate process: `python -m tests.processes.agent_root PROJECT SCRIPT` runs one agent until killed."""

import sys
from functools import partial
from pathlib import Path

import trio

from tests.processes.root_harness import open_root_harness


async def _run(project: Path, script: str) -> None:
    async with open_root_harness(project, script) as tree, trio.open_nursery() as nursery:
        nursery.start_soon(tree.supervisor.run_agent, tree.agent_run("boss"))
        await tree.until_state("sleeper", "running")
        sys.stdout.write("running\n")
        sys.stdout.flush()


if __name__ == "__main__":
    trio.run(partial(_run, Path(sys.argv[1]), Path(sys.argv[2]).read_text()))
