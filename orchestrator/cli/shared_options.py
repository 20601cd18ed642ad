"""Options that several commands share, and the session that an option names."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from coterie.orchestrator.cli.completion_candidates import complete_session
from coterie.session_directory import SessionDirectory


def json_option(page: str | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Option `--json`; *page* is the page below docs/ that describes the output."""
    text = "Print JSON." if page is None else f"Print JSON; see docs/{page}.md."
    return click.option("--json", "is_json", is_flag=True, help=text)


session_option = click.option(
    "--session",
    "-s",
    metavar="ID",
    shell_complete=complete_session,
    help="Session id.  [default: newest session of this directory]",
)


def find_session(name: str | None) -> SessionDirectory:
    """Find the session whose id begins with *name*, or the newest one of this directory. Raises `ConfigInvalid`."""
    return SessionDirectory.find(name) if name else SessionDirectory.newest(Path.cwd())
