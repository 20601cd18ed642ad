"""Which view a run has: what the user asked for, and what the terminal can do."""

import os
import sys

from coterie.orchestrator.cli.views.plain import PlainView
from coterie.orchestrator.cli.views.programs import ResultView, StreamView, SummaryView
from coterie.orchestrator.cli.views.terminal import TerminalView
from coterie.orchestrator.cli.views.view import View


def choose_view(output_format: str, *, only_result: bool) -> View:
    """The view for `--output-format` and `-p`."""
    if output_format == "stream-json":
        return StreamView()
    if output_format == "json":
        return SummaryView()
    if only_result:
        return ResultView()
    return TerminalView() if _can_move() else PlainView()


def _can_move() -> bool:
    is_seen = sys.stdout.isatty() and sys.stderr.isatty()
    return is_seen and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
