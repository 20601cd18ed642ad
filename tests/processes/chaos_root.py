"""Root whose processes are killed at random, run as `python -m tests.processes.chaos_root PROJECT BUDGET`.

It prints the id of its session, and runs a tree of agents until all have ended, or until SIGTERM.
"""

import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from decimal import Decimal
from functools import partial
from pathlib import Path

import trio

from coterie.orchestrator.processes.process_start import StartFailed
from coterie.session_directory import MAIN
from tests.processes.root_harness import RootHarness, open_root_harness

BOSSES = ("left", "right")
SCRIPT = """
left:
  - tools:
      - Bash: {command: "sleep 600", run_in_background: true}
      - Agent: {description: "look", prompt: "look", name: left-one, run_in_background: true}
      - Agent: {description: "look", prompt: "look", name: left-two, run_in_background: true}
  - {text: "I wait.", times: always}
right:
  - tools:
      - Agent: {description: "part", prompt: "part one", name: right-one, subagent_type: fork}
      - Agent: {description: "part", prompt: "part two", name: right-two, subagent_type: fork}
  - tools: [{Bash: {command: "setsid sleep 600 & sleep 0.1"}}]
  - {text: "done: {{agent}}", times: always}
default:
  - tools: [{Bash: {command: "setsid sleep 600 & sleep 0.1"}}]
  - tools: [{Bash: {command: "sleep 600 & sleep 0.2"}}]
  - {text: "done: {{agent}}", times: always}
"""


async def _run(project: Path, budget: Decimal) -> None:
    async with open_root_harness(project, SCRIPT, grace=0.3, budget=budget) as tree:
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            sys.stdout.write(f"{tree.session.id}\n")
            sys.stdout.flush()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel_on_signal, signals, nursery.cancel_scope)
                async with trio.open_nursery() as bosses:
                    for name in BOSSES:
                        bosses.start_soon(_run_one, tree, name)
                nursery.cancel_scope.cancel()
        await tree.supervisor.services.mail.roster.set_state(MAIN, "ended")


async def _run_one(tree: RootHarness, name: str) -> None:
    with contextlib.suppress(StartFailed):  # the zygote was killed, and the next one too
        await tree.supervisor.run_agent(tree.agent_run(name))


async def _cancel_on_signal(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it may arrive after all agents have ended
    trio.run(partial(_run, Path(sys.argv[1]), Decimal(sys.argv[2])))
