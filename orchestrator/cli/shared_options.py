"""Options that several commands share, and what they name: the session, and the model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from coterie.agents.loop.model.catalog import has_model_key
from coterie.orchestrator.cli.completion_candidates import complete_session
from coterie.orchestrator.cli.output import ExitCode
from coterie.session_directory import SessionDirectory


def json_option(
    page: str | None = None, text: str = "Print JSON instead of text"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Option `--json` with the help *text*; *page* is the page below docs/ that describes the output."""
    text = f"{text}." if page is None else f"{text}; see docs/{page}.md."
    return click.option("--json", "is_json", is_flag=True, help=text)


def script_option(effect: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Option `--script` with the script of the embedded model; its help ends with the *effect*."""
    text = f"Take the replies of the model from the script FILE (docs/scripts.md), so that {effect}."
    return click.option("--script", metavar="FILE", type=click.Path(path_type=Path), help=text)


session_option = click.option(
    "--session",
    "-s",
    metavar="ID",
    shell_complete=complete_session,
    help="Session id, or the first characters of it.  [default: newest session of this directory]",
)


class NoModel(click.ClickException):
    """Neither an API key nor a script is available."""

    exit_code = ExitCode.MODEL_UNREACHABLE


def require_model(script: Path | None) -> None:
    """Raise `NoModel` unless a *script* or an API key is given."""
    if script is None and not has_model_key():
        raise NoModel("no model is available; set ANTHROPIC_API_KEY, or pass --script FILE to run without a key")


def find_session(name: str | None) -> SessionDirectory:
    """Find the session whose id begins with *name*, or the newest one of this directory. Raises `ConfigInvalid`."""
    return SessionDirectory.find(name) if name else SessionDirectory.newest(Path.cwd())
