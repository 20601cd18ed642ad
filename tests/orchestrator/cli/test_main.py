import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import coterie
from coterie.agents.loop.model.catalog import known_models
from coterie.orchestrator.cli.main import COMMANDS, main


def test_every_command_can_be_loaded_and_has_help() -> None:
    for name, entry in COMMANDS.items():
        module, _, attribute = entry.target.partition(":")
        assert isinstance(getattr(import_module(module), attribute), click.Command)
        done = CliRunner().invoke(main, [name, "--help"])
        assert done.exit_code == 0
        assert "Usage:" in done.output


def test_help_lists_all_commands_with_their_summaries() -> None:
    output = CliRunner().invoke(main, ["--help"]).output
    for name, entry in COMMANDS.items():
        assert name in output
        assert entry.summary in output


def test_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(main, ["--version"]).output == f"coterie, version {coterie.__version__}\n"


@pytest.mark.parametrize("arguments", [["sevre"], ["serve", "--prot", "1"], ["serve", "--port", "x"]])
def test_wrong_arguments_are_usage_errors(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "Error: " in done.output


def test_an_unknown_command_is_refused_with_the_closest_one() -> None:
    assert "'sevre'; did you mean 'serve'?" in CliRunner().invoke(main, ["sevre"]).output
    assert "run, resume, demo, scenario, serve" in CliRunner().invoke(main, ["xyz"]).output


@pytest.mark.parametrize("command", ["demo", "serve"])
def test_an_unreadable_table_of_models_is_reported_in_one_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COTERIE_MODELS", str(tmp_path / "missing.toml"))
    known_models.cache_clear()
    done = CliRunner().invoke(main, [command])
    known_models.cache_clear()
    assert done.exit_code == 2
    assert done.output.startswith(f"Error: {tmp_path}/missing.toml: ")
    assert done.output.count("\n") == 1


@pytest.mark.slow
def test_python_m_coterie_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "coterie", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("coterie, version")
