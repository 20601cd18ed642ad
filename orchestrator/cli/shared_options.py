"""Options that several commands share (`--json`, `--script`, `--session`), and the checks and lookups for them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from coterie.agents.loop.model.catalog import has_model_key
from coterie.orchestrator.cli.completion_candidates import complete_model, complete_session
from coterie.orchestrator.cli.output import ExitCode
from coterie.session_directory import SessionDirectory


def json_option(
    page: str | None = None, text: str = "Print JSON instead of text"
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option `--json` with the help *text*; *page* is the page below docs/ that describes the output."""
    text = f"{text}." if page is None else f"{text}; see docs/{page}.md."
    return click.option("--json", "is_json", is_flag=True, help=text)


def script_option(effect: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option `--script` for a file with scripted model replies; its help ends with `so that` *effect*."""
    text = f"Take the replies of the model from the script FILE (docs/scripts.md), so that {effect}."
    return click.option("--script", metavar="FILE", type=click.Path(path_type=Path), help=text)


session_option = click.option(
    "--session",
    "-s",
    metavar="ID",
    shell_complete=complete_session,
    help="Session id, or its first characters.  [default: the session started last in this directory]",
)

model_option = click.option(
    "--model",
    shell_complete=complete_model,
    help="Model id, or an alias such as sonnet or opus.  [default: model of the agent type or settings, else sonnet]",
)


class NoModel(click.ClickException):
    """No model can be called: there is neither an API key nor a script (file with scripted model replies)."""

    exit_code = ExitCode.MODEL_UNREACHABLE


def require_model(script: Path | None) -> None:
    """Raise `NoModel` if there is neither a *script* (file with scripted model replies) nor an API key."""
    if script is None and not has_model_key():
        raise NoModel("no model is available; set ANTHROPIC_API_KEY, or pass --script FILE to run without a key")


def find_session(name: str | None) -> SessionDirectory:
    """Find the session with an id that begins with *name*; if None, this directory's newest. Raises `ConfigInvalid`."""
    return SessionDirectory.find(name) if name else SessionDirectory.newest(Path.cwd())
