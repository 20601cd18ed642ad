"""After a command, and after a play: nothing may be left, and whatever is left all the same is ended."""

import signal

import trio

from coterie.clock import Clock
from coterie.orchestrator.doctor import examine_machine, examine_session
from coterie.orchestrator.session import Session
from coterie.scenarios.runner.processes import find_processes, send
from coterie.scenarios.runner.stage import Stage

PATIENCE = 15.0
"""Seconds in which all that a crash has left is cleaned up by who answers for that."""
LOOK_EVERY = 0.05
ROUNDS = 50


async def settle(stage: Stage, session: Session | None, patience: float = PATIENCE) -> tuple[str, ...]:
    """Wait until no process of the play is left and the doctor finds nothing; what there is else."""
    found: tuple[str, ...] = ("not looked",)
    with trio.move_on_after(patience):
        while found := await trio.to_thread.run_sync(_left, stage, session):  # noqa: ASYNC110 - nobody tells
            await trio.sleep(LOOK_EVERY)
    return found


async def end_everything(stage: Stage) -> None:
    """Kill all processes of the play, and those that they start meanwhile; returns once they are gone."""
    for _ in range(ROUNDS):
        if not (processes := await trio.to_thread.run_sync(find_processes, stage.home)):
            return
        for process in processes:
            send(process, signal.SIGKILL)
        await trio.sleep(LOOK_EVERY)


def _left(stage: Stage, session: Session | None) -> tuple[str, ...]:
    processes = tuple(f"process {each.pid}, {each.name}" for each in find_processes(stage.home))
    if processes or session is None:
        return processes
    found = [*examine_machine(session), *examine_session(session.id, Clock.from_environment())]
    return tuple(f"{finding.where}: {finding.what}" for finding in found if not finding.is_harmless)
