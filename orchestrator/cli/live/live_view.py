"""Live view of a session: shows its board (table of agents, mail and events) while it runs; prints the final board."""

import attrs
from rich.console import Console
from rich.text import Text

from coterie.agents.events.agent_events import Finished
from coterie.clock import Clock
from coterie.orchestrator.cli.live.board import SessionBoard
from coterie.orchestrator.cli.live.board_render import print_board
from coterie.orchestrator.cli.live.controller import BoardController
from coterie.orchestrator.cli.live.keyboard import open_keyboard
from coterie.orchestrator.cli.live.live_screen import LiveScreen
from coterie.orchestrator.cli.live.poller import open_poller
from coterie.orchestrator.cli.output import sanitize
from coterie.orchestrator.cli.views.event_text import error_text, finish_text
from coterie.orchestrator.cli.views.view import View
from coterie.session_directory import SessionDirectory

BELOW = 2
"""Number of lines that the command and the shell prompt need below the final board."""


def live_console() -> Console:
    """Return a console for the board that prints text unchanged: no markup, emoji codes or highlighting."""
    return Console(highlight=False, markup=False, emoji=False)


async def show_board(session: SessionDirectory, *, only: str | None = None) -> None:
    """Show the board (agents, mail, events) of *session* until the user leaves; of *only* with descendants if given.

    The terminal is restored at the end, also after cancellation. Raises `OSError` without a terminal.
    """
    with open_poller(session) as poller, open_keyboard() as keyboard:
        screen = LiveScreen(
            poller=poller,
            keyboard=keyboard,
            console=live_console(),
            clock=Clock.from_environment(),
            controller=BoardController(poller.board, only),
        )
        await screen.run()


def read_last_board(session: SessionDirectory) -> SessionBoard:
    """Return the final board (agents, mail, costs) of *session*, which has ended. Reads files. Raises `OSError`."""
    with open_poller(session) as poller:
        poller.end()
        return poller.board


def print_last_board(board: SessionBoard, *, only: str | None = None) -> None:
    """Print the final *board* of a session, then the last reply of its lead (first agent), end reason and cost."""
    console = live_console()
    end = [] if board.finished is None else _end_text(board.finished)
    # Board, reply and shell prompt share one screen, unless the reply is very long.
    below = sum(len(console.render_lines(text, pad=False)) for text in end) + BELOW
    height = max(console.height - below, console.height // 2)
    print_board(board, console, now=Clock.from_environment().now(), only=only, height=height)
    for text in end:
        console.print(text)


def _end_text(finished: Finished) -> list[Text]:
    words = sanitize(finished.result).strip("\n")
    error = error_text(finished)
    return [
        *([Text(f"\n{words}\n")] if words else []),
        Text(sanitize(finish_text(finished)), "dim"),
        *([] if error is None else [Text(error, "red")]),
    ]


@attrs.define(eq=False)
class LiveView(View):
    """View that shows the board (a table of the agents) during a run, then prints the final board and the reply."""

    shows_approvals = True

    _session: SessionDirectory | None = attrs.field(default=None, init=False)

    async def run(self, session: SessionDirectory) -> bool:
        """Show the board of *session* until the user leaves it; return True. Raises `OSError` without a terminal."""
        self._session = session
        await show_board(session)
        self._session = None
        return True

    def close(self) -> None:
        """Print the final board, unless the user has left the view while the session was running."""
        session, self._session = self._session, None
        if session is not None:
            print_last_board(read_last_board(session))
