"""Choice of the view that shows a run to the user, by command-line options and properties of the terminal."""

import os
import shutil
import sys

from coterie.agents.definitions.team_definition import load_recorded_team
from coterie.orchestrator.cli.live.keyboard import has_keyboard
from coterie.orchestrator.cli.views.plain import PlainView
from coterie.orchestrator.cli.views.program_views import ResultView, StreamView, SummaryView
from coterie.orchestrator.cli.views.terminal_view import TerminalView
from coterie.orchestrator.cli.views.view import View
from coterie.orchestrator.session.session_request import SessionRequest
from coterie.session_directory import COORDINATOR, SessionDirectory

NARROWEST, LOWEST = 60, 15
"""Minimum columns and lines of a terminal on which a team's run shows the board (live display) without an option."""


def choose_view(output_format: str, *, only_result: bool, is_live: bool = False) -> View:
    """Return the view for `--output-format` and `-p` (*only_result*); the board if *is_live* and it can be shown."""
    if output_format == "stream-json":
        return StreamView()
    if output_format == "json":
        return SummaryView()
    if only_result:
        return ResultView()
    if is_live and can_show_board():
        # Most runs have no board, and its modules would be a tenth of all that the command imports.
        from coterie.orchestrator.cli.live.live_view import LiveView  # noqa: PLC0415

        return LiveView()
    return TerminalView() if _is_dynamic_terminal() else PlainView()


def can_show_board() -> bool:
    """True if the board can be drawn: output goes to a terminal with cursor movement, and its keys can be read."""
    return _is_dynamic_terminal() and sys.stdin.isatty() and has_keyboard()


def is_team(assignment: SessionRequest) -> bool:
    """True if a coordinator or a team runs, or a session with a team is resumed. Raises `ConfigInvalid`."""
    if assignment.definition == COORDINATOR or assignment.team is not None:
        return True
    return assignment.session is not None and load_recorded_team(SessionDirectory.find(assignment.session)) is not None


def has_room_for_board() -> bool:
    """True if the terminal is large enough to show the board although the user did not request it by an option."""
    width, height = shutil.get_terminal_size()
    return width >= NARROWEST and height >= LOWEST


def _is_dynamic_terminal() -> bool:
    is_seen = sys.stdout.isatty() and sys.stderr.isatty()
    return is_seen and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
