"""Runs `coterie` in the test's process, and checks the form of its output."""

from typing import Any

import msgspec
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from coterie.orchestrator.cli.main import main


def coterie(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


def printed(*arguments: str) -> Any:
    """JSON output of a command that succeeds."""
    done = coterie(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return msgspec.json.decode(done.stdout)


def refusal(done: Result) -> str:
    """Error line of a refused command, which has printed nothing else."""
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    return done.stderr.removeprefix("Error: ").rstrip()


def offered(*words: str) -> list[str]:
    """Completion candidates for the last of *words*."""
    shell = ShellComplete(main, {}, "coterie", "_COTERIE_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]
