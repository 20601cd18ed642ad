"""Command-line client of a session: starts the root (supervisor), shows events, prompts the user, forwards signals."""

import contextlib
import signal
import sys
from collections.abc import AsyncIterator

import attrs
import click
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.events.agent_events import Finished
from coterie.agents.permissions.types import UserPrompter
from coterie.agents.root_link.messages import RunFailed
from coterie.orchestrator.cli.output import ExitCode, UsageRefused
from coterie.orchestrator.cli.views.view import View, show_events, show_remaining_events
from coterie.orchestrator.control.launch_client import FinalMessage, RootClient, RootEvents, open_root_client
from coterie.orchestrator.control.requests import EndSession, InterruptTurn, SessionEnded, SessionOpened
from coterie.orchestrator.events.follower import EventFollower, open_follower
from coterie.orchestrator.session.session_request import SessionRequest
from coterie.session_directory import SessionDirectory


def run_client(assignment: SessionRequest, view: View, prompter: UserPrompter | None = None) -> None:
    """Start a root (supervisor process) for *assignment*, show the session in *view*, and exit with an `ExitCode`.

    The first SIGINT or SIGTERM interrupts the turn of the lead (first agent), a second one ends the session. A closed
    standard output interrupts the turn too, and raises `BrokenPipeError` at the end. Raises `UsageRefused` for an error
    that the user can correct, and `ClickException` for another failure of the root. *prompter* asks for permissions.
    """
    watch = _SessionClient(assignment, view, prompter)
    try:
        outcome = trio.run(watch.run)
    finally:
        view.close()
    if watch.is_detached:
        click.echo(f"session {watch.session} continues; reconnect with `coterie attach {watch.session}`", err=True)
        sys.exit(ExitCode.DONE)
    if watch.is_unread:
        raise BrokenPipeError
    if watch.signal is not None and not watch.is_completed:
        sys.exit(ExitCode.TERMINATED if watch.signal == signal.SIGTERM else ExitCode.INTERRUPTED)
    if isinstance(outcome, RunFailed):
        raise (UsageRefused if outcome.is_for_user else click.ClickException)(outcome.reason)
    if watch.finished is None or not (outcome.is_done or watch.is_completed):
        advice = "Run it again." if watch.session is None else f"Continue with `coterie resume {watch.session}`."
        raise click.ClickException(f"the session ended before its task was done: {outcome.reason} {advice}")
    sys.exit(exit_code_for(watch.finished))


def detach(assignment: SessionRequest) -> str:
    """Start the session of *assignment*, return its id, and let it run without a client. Raises `UsageRefused`."""

    async def start() -> str:
        async with open_root_client(assignment) as root_client:
            message = await root_client.receive()
            if isinstance(message, SessionOpened):
                root_client.detach()
                return message.session
        reason = message.reason if isinstance(message, RunFailed) else "its root process ended unexpectedly; try again"
        raise UsageRefused(f"the session could not be started: {reason}")

    return trio.run(start)


def exit_code_for(finished: Finished) -> ExitCode:
    """Return the exit code of `coterie run` for *finished*, the end of the run of the lead (first agent)."""
    if finished.reason == "completed":
        return ExitCode.DONE
    if finished.reason == "budget":
        return ExitCode.BUDGET_SPENT
    return ExitCode.MODEL_UNREACHABLE if finished.is_unreachable else ExitCode.FAILED


@attrs.define(eq=False)
class _SessionClient:
    """State of `run_client`: the session that it started, received signals, and the end of the session."""

    assignment: SessionRequest
    view: View
    prompter: UserPrompter | None
    session: str | None = None
    signal: int | None = None
    is_unread: bool = False
    is_detached: bool = False
    """True if the user left the view and the session continues without this client."""
    finished: Finished | None = None
    """Last event of the lead (first agent), with its result; None until the lead has finished."""

    @property
    def is_completed(self) -> bool:
        """True if the lead (first agent) has finished its task with the end reason `completed`."""
        return self.finished is not None and self.finished.reason == "completed"

    async def run(self) -> FinalMessage:
        """Start the root (supervisor process), show the session until it ends, and return the root's last message."""
        outcome: FinalMessage | None = None
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with open_root_client(self.assignment) as root_client, trio.open_nursery() as nursery:
                nursery.start_soon(self._forward_signals, signals, root_client)
                outcome = await self._watch_root(root_client)
                nursery.cancel_scope.cancel()
        return outcome or SessionEnded(is_done=False, reason="its process was killed.")

    async def _watch_root(self, root_client: RootClient) -> FinalMessage | None:
        session = self.assignment.session
        if session is not None:
            # Past events are skipped, so they must be read before new ones are written.
            return await self._follow(SessionDirectory.find(session), root_client, is_resumed=True)
        message = await root_client.receive()
        if not isinstance(message, SessionOpened):
            return message if isinstance(message, SessionEnded | RunFailed) else None
        self.session = message.session
        return await self._follow(SessionDirectory.find(message.session), root_client, is_resumed=False)

    async def _follow(
        self, session: SessionDirectory, root_client: RootClient, *, is_resumed: bool
    ) -> FinalMessage | None:
        outcome: FinalMessage | None = None
        async with open_follower(session.directory, self.view.agent) as follower:
            if is_resumed:
                follower.skip()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._show, follower, root_client)
                nursery.start_soon(self._run_view, session, root_client, nursery.cancel_scope)
                root_events = RootEvents(
                    root_client, None if self.prompter is None else self.prompter.ask, self._set_session
                )
                outcome = await root_events.run(nursery)
                nursery.cancel_scope.cancel()
            try:
                self.finished = show_remaining_events(self.view, follower) or self.finished
            except BrokenPipeError:
                self.is_unread = True
        return outcome

    def _set_session(self, session: str) -> None:
        self.session = session

    async def _show(self, follower: EventFollower, root_client: RootClient) -> None:
        try:
            self.finished = await show_events(self.view, follower)
        except BrokenPipeError:
            self.is_unread = True
            with contextlib.suppress(ControlLost):
                root_client.send(InterruptTurn())

    async def _run_view(self, session: SessionDirectory, root_client: RootClient, scope: trio.CancelScope) -> None:
        if await self.view.run(session):
            with contextlib.suppress(ControlLost):
                root_client.detach()
                self.is_detached = True
                scope.cancel()

    async def _forward_signals(self, signals: AsyncIterator[int], root_client: RootClient) -> None:
        async for number in signals:
            with contextlib.suppress(ControlLost):
                root_client.send(InterruptTurn() if self.signal is None and self.session is not None else EndSession())
            self.signal = number
