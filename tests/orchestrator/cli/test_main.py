from importlib import import_module
from pathlib import Path

import click
import pytest

from coterie import __version__
from coterie.agents.loop.model.catalog import known_models
from coterie.orchestrator.cli.main import COMMANDS
from tests.orchestrator.cli.command_runner import coterie


def test_every_command_can_be_loaded_and_help_and_version_are_printed() -> None:
    output = coterie("--help").output
    for name, entry in COMMANDS.items():
        module, _, attribute = entry.target.partition(":")
        assert isinstance(getattr(import_module(module), attribute), click.Command)
        done = coterie(name, "--help")
        assert (done.exit_code, "Usage:" in done.output) == (0, True)
        assert name in output
        assert entry.summary in output
    assert coterie("--version").output == f"coterie, version {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sevre"], "'sevre'; did you mean 'serve'?"),
        (["xyz"], "run, resume, demo, scenario, serve"),
        (["serve", "--prot", "1"], "--prot"),
        (["serve", "--port", "x"], "'x'"),
    ],
)
def test_wrong_arguments_are_usage_errors(arguments: list[str], words: str) -> None:
    done = coterie(*arguments)
    assert (done.exit_code, "Error: " in done.output, words in done.output) == (2, True, True), done.output


@pytest.mark.parametrize("command", ["demo", "serve"])
def test_an_unreadable_table_of_models_is_reported_in_one_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COTERIE_MODELS", str(tmp_path / "missing.toml"))
    known_models.cache_clear()
    done = coterie(command)
    known_models.cache_clear()
    assert done.exit_code == 2
    assert done.output.startswith(f"Error: {tmp_path}/missing.toml: ")
    assert done.output.count("\n") == 1
