"""A job under signals: interrupted or terminated, it stops with everything recorded."""

import signal
import sys
from collections.abc import AsyncIterator, Callable

import trio

from coterie.agents.errors import ConfigInvalid
from coterie.agents.outcome import Step
from coterie.orchestrator.cli.exit_codes import ExitCode, Refused
from coterie.orchestrator.embedded import ServerFailed
from coterie.orchestrator.running import Done, Job, run_job

Outcome = Done | signal.Signals | ConfigInvalid | ServerFailed


def work(job: Job, tell: Callable[[Step], None]) -> Done:
    """Do *job* and return what came of it.

    Exits with the published code on SIGINT and SIGTERM. Raises `Refused` for what the user must mend.
    """
    outcome = trio.run(_run, job, tell)
    if isinstance(outcome, Done):
        return outcome
    if isinstance(outcome, signal.Signals):
        sys.exit(ExitCode.TERMINATED if outcome == signal.SIGTERM else ExitCode.INTERRUPTED)
    raise Refused(str(outcome)) from outcome


async def _run(job: Job, tell: Callable[[Step], None]) -> Outcome:
    """What ended the job, as a value: raised through the nursery an error would come out in a group."""
    outcomes: list[Outcome] = []
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_await_signal, signals, outcomes, nursery.cancel_scope)
            try:
                outcomes.append(await run_job(job, tell))
            except (ConfigInvalid, ServerFailed) as exc:
                outcomes.append(exc)
            nursery.cancel_scope.cancel()
    return outcomes[0]


async def _await_signal(signals: AsyncIterator[int], outcomes: list[Outcome], scope: trio.CancelScope) -> None:
    async for number in signals:
        outcomes.append(signal.Signals(number))
        scope.cancel()
