"""A board on the terminal: for as long as somebody looks, or once."""

from rich.console import Console
from rich.text import Text

from coterie.agents.events import Finished
from coterie.clock import Clock
from coterie.orchestrator.cli.live.drawing import print_board
from coterie.orchestrator.cli.live.keys import open_keyboard
from coterie.orchestrator.cli.live.looking import open_lookout
from coterie.orchestrator.cli.live.screen import Screen
from coterie.orchestrator.cli.live.state import Board
from coterie.orchestrator.cli.live.steering import Steering
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.cli.wording import error_text, finish_text
from coterie.orchestrator.session import Session

BELOW = 2
"""Lines that a command and the shell write after a board that is printed."""


def live_console() -> Console:
    """The terminal, on which nothing is taken for markup."""
    return Console(highlight=False, markup=False, emoji=False)


async def show_board(session: Session, *, only: str | None = None) -> None:
    """Show the board of *session* until the user leaves.

    Cancellation leaves the terminal as it was found. Raises `OSError` without a terminal.
    """
    with open_lookout(session) as lookout, open_keyboard() as keyboard:
        screen = Screen(
            lookout=lookout,
            keyboard=keyboard,
            console=live_console(),
            clock=Clock.from_environment(),
            steering=Steering(lookout.board, only),
        )
        await screen.run()


def read_last_board(session: Session) -> Board:
    """How *session*, on which nobody is at work, stands. Blocks on the disk; raises `OSError`."""
    with open_lookout(session) as lookout:
        lookout.end()
        return lookout.board


def print_last_board(board: Board, *, only: str | None = None) -> None:
    """Print *board* of a session that has ended, and below it what its lead said last."""
    console = live_console()
    end = [] if board.finished is None else _end_of(board.finished)
    # The board and what follows, with the line of the shell, are on one screen, unless the lead has said very much.
    below = sum(len(console.render_lines(text, pad=False)) for text in end) + BELOW
    height = max(console.height - below, console.height // 2)
    print_board(board, console, now=Clock.from_environment().now(), only=only, height=height)
    for text in end:
        console.print(text)


def _end_of(finished: Finished) -> list[Text]:
    words = printable(finished.result).strip("\n")
    error = error_text(finished)
    return [
        *([Text(f"\n{words}\n")] if words else []),
        Text(printable(finish_text(finished)), "dim"),
        *([] if error is None else [Text(error, "red")]),
    ]
