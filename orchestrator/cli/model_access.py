"""Check that a command has a model: a script, or an API key in the environment."""

import os
from pathlib import Path

import click

from coterie.orchestrator.cli.output import ExitCode

MODEL_KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


class NoModel(click.ClickException):
    """Neither an API key nor a script is available."""

    exit_code = ExitCode.MODEL_UNREACHABLE


def require_model(script: Path | None) -> None:
    """Raise `NoModel` unless a *script* or an API key is given."""
    if script is None and not has_key():
        raise NoModel("no model is available; set ANTHROPIC_API_KEY, or pass --script FILE to run without a key")


def has_key() -> bool:
    """True if the environment holds an API key."""
    return any(os.environ.get(name) for name in MODEL_KEY_VARIABLES)
