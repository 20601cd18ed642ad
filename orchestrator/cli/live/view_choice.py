"""Choice of the view for a run, by options and terminal."""

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
"""Least columns and lines of a terminal that gets a board by default."""


def choose_view(output_format: str, *, only_result: bool, is_live: bool = False) -> View:
    """View for `--output-format` and `-p`; a board if requested and possible."""
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
    """True if there is a terminal to draw on and a keyboard."""
    return _is_dynamic_terminal() and sys.stdin.isatty() and has_keyboard()


def is_team(assignment: SessionRequest) -> bool:
    """True if the request is for more than one agent. Raises `ConfigInvalid` for an unreadable team."""
    if assignment.definition == COORDINATOR or assignment.team is not None:
        return True
    return assignment.session is not None and load_recorded_team(SessionDirectory.find(assignment.session)) is not None


def has_room_for_board() -> bool:
    """True if the terminal is large enough for a board that was not requested."""
    width, height = shutil.get_terminal_size()
    return width >= NARROWEST and height >= LOWEST


def _is_dynamic_terminal() -> bool:
    is_seen = sys.stdout.isatty() and sys.stderr.isatty()
    return is_seen and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
