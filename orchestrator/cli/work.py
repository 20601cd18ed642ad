"""A session at work under somebody's eyes, in a process that only looks: it shows, asks, and passes signals on."""

import contextlib
import signal
import sys
from collections.abc import AsyncIterator

import attrs
import click
import trio

from coterie.agents.control.words import Unable
from coterie.agents.errors import ControlLost
from coterie.agents.events import Finished
from coterie.agents.permissions import Asker
from coterie.orchestrator.cli.exit_codes import ExitCode, Refused
from coterie.orchestrator.cli.output import CLOSED, discard_output
from coterie.orchestrator.cli.views.view import View, show, show_rest
from coterie.orchestrator.events.following import Follower, open_follower
from coterie.orchestrator.root_process.assignment import Assignment
from coterie.orchestrator.root_process.calling import Host, open_root_process
from coterie.orchestrator.root_process.hearing import Hearing, LastWord
from coterie.orchestrator.root_process.words import End, Interrupt, Opened, Over
from coterie.orchestrator.session import Session


def work(assignment: Assignment, view: View, asker: Asker | None = None) -> None:
    """Let a root do *assignment*, show what happens, and exit with the published code.

    The first SIGINT or SIGTERM ends the turn that is under way, a second one everything, at once. When nobody reads
    standard output any more the turn is ended too. Raises `Refused` for what the user must mend.
    """
    watch = _Watch(assignment, view, asker)
    try:
        outcome = trio.run(watch.run)
    finally:
        view.close()
    if watch.is_left:
        click.echo(f"session {watch.session} goes on; `coterie attach {watch.session}` shows it again", err=True)
        sys.exit(ExitCode.DONE)
    if watch.is_unread:
        discard_output()
        sys.exit(CLOSED)
    if watch.signal is not None and not watch.is_completed:
        sys.exit(ExitCode.TERMINATED if watch.signal == signal.SIGTERM else ExitCode.INTERRUPTED)
    if isinstance(outcome, Unable):
        raise (Refused if outcome.is_for_user else click.ClickException)(outcome.reason)
    if watch.finished is None or not (outcome.is_done or watch.is_completed):
        raise click.ClickException(f"{watch.name} has ended before its task: {outcome.reason}")
    sys.exit(exit_code_of(watch.finished))


def detach(assignment: Assignment) -> str:
    """Let a root do *assignment* on its own; the id of its session. Raises `Refused`."""
    return trio.run(_detach, assignment)


async def _detach(assignment: Assignment) -> str:
    async with open_root_process(assignment) as host:
        word = await host.hear()
        if isinstance(word, Opened):
            host.leave()
            return word.session
    reason = word.reason if isinstance(word, Unable) else "its process has ended"
    raise Refused(f"no session was started: {reason}")


def exit_code_of(finished: Finished) -> ExitCode:
    """The published code for how a run of the lead ended."""
    if finished.reason == "completed":
        return ExitCode.DONE
    if finished.reason == "budget":
        return ExitCode.BUDGET_SPENT
    return ExitCode.MODEL_UNREACHABLE if finished.is_unreachable else ExitCode.FAILED


@attrs.define(eq=False)
class _Watch:
    """One session that is looked at, from its start to its end."""

    assignment: Assignment
    view: View
    asker: Asker | None
    session: str | None = None
    signal: int | None = None
    is_unread: bool = False
    is_left: bool = False
    """Whether the user went, and the session goes on."""
    finished: Finished | None = None
    """How the run of the lead ended, once it has said so."""

    @property
    def name(self) -> str:
        """What to call it."""
        return "the root" if self.session is None else f"session {self.session}"

    @property
    def is_completed(self) -> bool:
        """Whether the task is done."""
        return self.finished is not None and self.finished.reason == "completed"

    async def run(self) -> LastWord:
        """Start the root and look at it to its end."""
        outcome: LastWord | None = None
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with open_root_process(self.assignment) as host, trio.open_nursery() as nursery:
                nursery.start_soon(self._heed, signals, host)
                outcome = await self._look(host)
                nursery.cancel_scope.cancel()
        return outcome or Over(is_done=False, reason="its process was killed.")

    async def _look(self, host: Host) -> LastWord | None:
        session = self.assignment.session
        if session is not None:
            # What happened before is passed over, so it must be read before anything new happens.
            return await self._follow(Session.find(session), host, is_resumed=True)
        word = await host.hear()
        if not isinstance(word, Opened):
            return word if isinstance(word, Over | Unable) else None
        self.session = word.session
        return await self._follow(Session.find(word.session), host, is_resumed=False)

    async def _follow(self, session: Session, host: Host, *, is_resumed: bool) -> LastWord | None:
        outcome: LastWord | None = None
        async with open_follower(session.directory, self.view.agent) as follower:
            if is_resumed:
                follower.skip()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._show, follower, host)
                nursery.start_soon(self._attend, session, host, nursery.cancel_scope)
                hearing = Hearing(host, None if self.asker is None else self.asker.ask, self._call)
                outcome = await hearing.hear_out(nursery)
                nursery.cancel_scope.cancel()
            self._show_rest(follower)
        return outcome

    def _call(self, session: str) -> None:
        self.session = session

    async def _show(self, follower: Follower, host: Host) -> None:
        try:
            self.finished = await show(self.view, follower)
        except BrokenPipeError:
            self._stop_unread(host)

    async def _attend(self, session: Session, host: Host, scope: trio.CancelScope) -> None:
        if await self.view.attend(session):
            with contextlib.suppress(ControlLost):
                host.leave()
                self.is_left = True
                scope.cancel()

    def _show_rest(self, follower: Follower) -> None:
        try:
            self.finished = show_rest(self.view, follower) or self.finished
        except BrokenPipeError:
            self.is_unread = True

    def _stop_unread(self, host: Host) -> None:
        self.is_unread = True
        with contextlib.suppress(ControlLost):
            host.say(Interrupt())

    async def _heed(self, signals: AsyncIterator[int], host: Host) -> None:
        async for number in signals:
            with contextlib.suppress(ControlLost):
                host.say(Interrupt() if self.signal is None and self.session is not None else End())
            self.signal = number
