"""Check that a command has a model: a script, or an API key in the environment."""

import os
from pathlib import Path

import click

from coterie.orchestrator.cli.output import ExitCode

MODEL_KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")


class NoModel(click.ClickException):
    """There is nothing to ask."""

    exit_code = ExitCode.MODEL_UNREACHABLE


def require_model(script: Path | None) -> None:
    """Raise `NoModel` unless a *script*, or a key, gives one."""
    if script is None and not has_key():
        raise NoModel("no model to ask: set ANTHROPIC_API_KEY, or give --script FILE to play one without a key")


def has_key() -> bool:
    """Whether the environment has a key for a model."""
    return any(os.environ.get(name) for name in MODEL_KEY_VARIABLES)
