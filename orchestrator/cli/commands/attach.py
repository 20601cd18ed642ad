"""`coterie attach`: shows a running session in any terminal."""

import signal
import sys
from collections.abc import AsyncIterator

import attrs
import click
import trio

from coterie.errors import first_exception
from coterie.orchestrator.cli.completion_candidates import complete_session
from coterie.orchestrator.cli.live.live_view import print_last_board, read_last_board, show_board
from coterie.orchestrator.cli.live.view_choice import can_show_board
from coterie.orchestrator.cli.logs.command import LogPrinter, check_agent
from coterie.orchestrator.cli.output import ExitCode
from coterie.orchestrator.cli.views.session_client import exit_code_for
from coterie.orchestrator.events.follower import open_follower
from coterie.orchestrator.events.session_reader import read_session
from coterie.orchestrator.session.root_lock import RootIdentity, find_root
from coterie.session_directory import SessionDirectory

LOG = LogPrinter(as_json=False)
ENDS = {
    "ended": "has ended",
    "interrupted": "was interrupted; `coterie resume` resumes it",
    "running": "is running, but its process does not accept connections; wait for its end",
}
"""Words for each state of a session, in the last line that the command prints."""


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--agent", metavar="NAME", help="Show only this agent and, in the table, the agents it started.")
def attach(*, session: str, agent: str | None) -> None:
    """Watch SESSION while it runs: its agents, their messages and costs; answer its requests for approval.

    SESSION is a session id from `coterie list`, or the first characters of it.

    On a terminal a table of the agents is shown and updated. Press `q` or Ctrl-C to leave; the session continues. `?`
    lists all keys, also those that approve or reject a request. Without a terminal, events are printed line by line,
    and no request can be answered. If SESSION has ended, its last state is shown.

    Exits 0 after `q`, 130 after Ctrl-C; after the end of the session, 0 if its task is done, 1 if it failed, was
    stopped or cannot be read, 3 if its budget is spent, 5 if no model could be reached, 130 if it crashed.
    """
    found = SessionDirectory.find(session)
    check_agent(found, agent)
    sys.exit(_Attachment(session=found, agent=agent, is_drawn=can_show_board()).run())


@attrs.define(eq=False, kw_only=True)
class _Attachment:
    """A client that shows one session until the session ends or the user leaves."""

    session: SessionDirectory
    agent: str | None
    is_drawn: bool
    _exit_code: ExitCode | None = attrs.field(default=None, init=False)
    """Exit code if the user left or a signal arrived before the session ended; None otherwise."""
    _is_unread: bool = attrs.field(default=False, init=False)

    def run(self) -> ExitCode:
        """Show the session until it ends or the user leaves.

        Raises `ClickException` if its files cannot be read, `BrokenPipeError` if the reader of stdout has gone, and
        other `OSError`.
        """
        if (root := find_root(self.session)) is not None:
            failure: BaseException | None = None
            try:
                trio.run(self._follow, root)
            except* OSError as group:
                failure = first_exception(group)
            if self._is_unread:
                raise BrokenPipeError
            if failure is not None:
                raise click.ClickException(f"session {self.session.id} cannot be read: {failure}; run `coterie doctor`")
        elif not self.is_drawn:
            for event in read_session(self.session.directory, self.agent):
                LOG.show(event)
        if self._exit_code is None:
            return self._end()
        click.echo(f"session {self.session.id} continues; reconnect with `coterie attach {self.session.id}`", err=True)
        return self._exit_code

    async def _follow(self, root: RootIdentity) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._handle_signals, signals, nursery.cancel_scope)
                nursery.start_soon(_wait_for_end, root, nursery.cancel_scope)
                if self.is_drawn:
                    await show_board(self.session, only=self.agent)
                    self._exit_code = ExitCode.DONE
                else:
                    await self._print()
                nursery.cancel_scope.cancel()

    async def _handle_signals(self, signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        async for number in signals:
            self._exit_code = ExitCode.TERMINATED if number == signal.SIGTERM else ExitCode.INTERRUPTED
            scope.cancel()

    async def _print(self) -> None:
        """Print past and new events until cancelled, then those still unread; set `_is_unread` if stdout was closed."""
        async with open_follower(self.session.directory, self.agent) as follower:
            try:
                try:
                    async for event in follower:
                        LOG.show(event)
                finally:
                    while (rest := follower.take_nowait()) is not None:
                        LOG.show(rest)
            except BrokenPipeError:
                self._is_unread = True

    def _end(self) -> ExitCode:
        """Print the last state of the session, and return the exit code for it."""
        board = read_last_board(self.session)
        if self.is_drawn:
            print_last_board(board, only=self.agent)
        reason = f": {board.reason}" if board.reason else ""
        click.echo(f"session {self.session.id} {ENDS[board.state]}{reason}", err=True)
        if board.state != "ended" or board.finished is None:
            return ExitCode.INTERRUPTED if board.state == "interrupted" else ExitCode.DONE
        return exit_code_for(board.finished)


async def _wait_for_end(root: RootIdentity, scope: trio.CancelScope) -> None:
    """Wait until *root*, the session's root (supervisor process), has ended, then cancel *scope*."""
    with root.open_handle() as handle:
        if handle is not None:
            await handle.wait_ended()
    scope.cancel()
