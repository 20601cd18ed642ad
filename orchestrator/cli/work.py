"""A job under signals and under somebody's eyes: whatever ends it, it ends with everything recorded."""

import signal
import sys
from collections.abc import AsyncIterator

import attrs
import click
import trio

from coterie.agents.agent import Agent
from coterie.agents.errors import ConfigInvalid, ModelUnreachable, ReplyMalformed
from coterie.agents.outcome import Ended
from coterie.agents.permissions import Asker
from coterie.orchestrator.cli.exit_codes import ExitCode, Refused
from coterie.orchestrator.cli.output import CLOSED, discard_output
from coterie.orchestrator.cli.views.view import View, show, show_rest
from coterie.orchestrator.embedded import ServerFailed
from coterie.orchestrator.events.following import Follower, open_follower
from coterie.orchestrator.running import Job, open_job
from coterie.orchestrator.worker import Worker


@attrs.frozen
class Failure:
    """The job cannot go on, for a reason that no other command line would mend."""

    reason: str


Outcome = Ended | ConfigInvalid | ServerFailed | Failure
"""How a job ended, as a value: raised through a nursery an error would come out in a group."""


def work(job: Job, view: View, asker: Asker | None = None) -> None:
    """Do *job*, show it, and exit with the published code.

    The first SIGINT or SIGTERM ends the turn that is under way, a second one everything, at once. When nobody reads
    standard output any more the turn is ended too. Raises `Refused` for what the user must mend.
    """
    run = _Run(view)
    try:
        outcome = trio.run(run.do, job, asker)
    finally:
        view.close()
    if run.is_unread:
        discard_output()
        sys.exit(CLOSED)
    if run.signal is not None and not _is_completed(outcome):
        sys.exit(ExitCode.TERMINATED if run.signal == signal.SIGTERM else ExitCode.INTERRUPTED)
    match outcome:
        case Ended():
            sys.exit(_exit_code(outcome))
        case Failure():
            raise click.ClickException(outcome.reason)
        case ConfigInvalid() | ServerFailed():
            raise Refused(str(outcome)) from outcome


def _exit_code(ended: Ended) -> ExitCode:
    if _is_completed(ended):
        return ExitCode.DONE
    if ended.reason == "budget":
        return ExitCode.BUDGET_SPENT
    return ExitCode.MODEL_UNREACHABLE if isinstance(ended.error, ModelUnreachable) else ExitCode.FAILED


def _is_completed(outcome: Outcome | None) -> bool:
    return isinstance(outcome, Ended) and outcome.reason == "completed"


@attrs.define(eq=False)
class _Run:
    """One run of a job, and what came between."""

    view: View
    signal: int | None = None
    is_unread: bool = False
    agent: Agent | None = None
    """Once there is one to interrupt."""

    async def do(self, job: Job, asker: Asker | None) -> Outcome | None:
        """Do *job*; None if it was cut short."""
        outcome: Outcome | None = None
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._heed, signals, nursery.cancel_scope)
                outcome = await self._do(job, asker)
                nursery.cancel_scope.cancel()
        return outcome

    async def _do(self, job: Job, asker: Asker | None) -> Outcome:
        try:
            async with open_job(job, asker) as worker:
                return await self._show_and_run(worker)
        except (ConfigInvalid, ServerFailed) as exc:
            return exc
        except OSError as exc:
            return Failure(f"the session cannot be kept: {exc.filename or job.project}: {exc.strerror}")

    async def _show_and_run(self, worker: Worker) -> Outcome:
        self.agent = worker.agent
        async with open_follower(worker.seat.session.directory, self.view.agent) as follower:
            follower.skip()
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._show, follower)
                    try:
                        return await worker.run()
                    except ReplyMalformed as exc:
                        return Failure(str(exc))
                    except OSError as exc:
                        nursery.cancel_scope.cancel()
                        return Failure(f"{worker.seat.session.directory} cannot be written: {exc.strerror}")
            finally:
                self._show_rest(follower)

    async def _show(self, follower: Follower) -> None:
        try:
            await show(self.view, follower)
        except BrokenPipeError:
            self._stop_unread()

    def _show_rest(self, follower: Follower) -> None:
        try:
            show_rest(self.view, follower)
        except BrokenPipeError:
            self._stop_unread()

    def _stop_unread(self) -> None:
        assert self.agent is not None
        self.is_unread = True
        self.agent.interrupt()

    async def _heed(self, signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        async for number in signals:
            if self.signal is None and self.agent is not None:
                self.agent.interrupt()
            else:
                scope.cancel()
            self.signal = number
