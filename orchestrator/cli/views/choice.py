"""Which view a run has: what the user asked for, and what the terminal can do."""

import os
import shutil
import sys

from coterie.orchestrator.cli.live.keys import has_keyboard
from coterie.orchestrator.cli.views.plain import PlainView
from coterie.orchestrator.cli.views.programs import ResultView, StreamView, SummaryView
from coterie.orchestrator.cli.views.terminal import TerminalView
from coterie.orchestrator.cli.views.view import View
from coterie.orchestrator.root_process.assignment import Assignment
from coterie.orchestrator.session import COORDINATOR, Session
from coterie.orchestrator.teams.recording import recorded_team

NARROWEST, LOWEST = 60, 15
"""Columns and lines of a terminal on which a board is of use."""


def choose_view(output_format: str, *, only_result: bool, is_live: bool = False) -> View:
    """The view for `--output-format` and `-p`; a board, if it is wanted and the terminal can show it."""
    if output_format == "stream-json":
        return StreamView()
    if output_format == "json":
        return SummaryView()
    if only_result:
        return ResultView()
    if is_live and can_draw():
        # Most runs have no board, and its modules would be a tenth of all that the command imports.
        from coterie.orchestrator.cli.live.view import LiveView  # noqa: PLC0415

        return LiveView()
    return TerminalView() if _can_move() else PlainView()


def can_draw() -> bool:
    """Whether there is a terminal to draw a board on, and a keyboard."""
    return _can_move() and sys.stdin.isatty() and has_keyboard()


def is_team(assignment: Assignment) -> bool:
    """Whether it is for more than one agent. Raises `ConfigInvalid` for a team that cannot be read."""
    if assignment.definition == COORDINATOR or assignment.team is not None:
        return True
    return assignment.session is not None and recorded_team(Session.find(assignment.session)) is not None


def is_large() -> bool:
    """Whether the terminal has room for a board that nobody asked for."""
    width, height = shutil.get_terminal_size()
    return width >= NARROWEST and height >= LOWEST


def _can_move() -> bool:
    is_seen = sys.stdout.isatty() and sys.stderr.isatty()
    return is_seen and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
