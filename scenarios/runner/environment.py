"""Isolated environment of a scenario run: workspace, home, sockets and clock."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import msgspec

from coterie.agents.hooks.hook_files import CLAUDE_HOME_VARIABLE
from coterie.clock import CLOCK_FILE_VARIABLE, Clock
from coterie.mailbox.fault_points import FAULTS_VARIABLE
from coterie.paths import HOME_VARIABLE
from coterie.scenarios.runner.scenario import IoFault, Scenario


def toml_text(mapping: Mapping[str, Any]) -> str:
    """Serialize *mapping* as TOML, one key per line, nested tables inline; no value may be None."""
    return "".join(f"{_toml_string(key)} = {_toml_value(value)}\n" for key, value in mapping.items())


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml_string(key)} = {_toml_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return _toml_string(value)


def _toml_string(value: object) -> str:
    # JSON and TOML write strings, numbers and booleans alike, except for this control character.
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


SEED_VARIABLE = "COTERIE_SEED"
REMOVED_PREFIXES = ("COTERIE_", "CLAUDE_", "ANTHROPIC_", "GIT_")
"""Prefixes of variables that configure the user's own sessions; the run does not inherit them."""
_IDENTITY = {
    **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "Coterie"),
    **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "coterie@localhost"),
    # Fixed, so that commits have the same ids in every run.
    **dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-01-01T00:00:00+0000"),
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


@attrs.frozen(kw_only=True)
class ScenarioEnvironment:
    """Directories and environment variables of one run."""

    root: Path
    variables: Mapping[str, str]
    """Environment variables of every command of the run."""

    @property
    def project(self) -> Path:
        """Working directory of the team."""
        return self.root / "project"

    @property
    def home(self) -> Path:
        """`COTERIE_HOME`."""
        return self.root / "home"

    @property
    def script(self) -> Path:
        """Script file of the first session."""
        return self.root / "script.yaml"

    def script_of(self, session: str) -> Path:
        """Return the script file of the second session *session*."""
        return self.root / f"script-{session}.yaml"

    @property
    def team(self) -> Path:
        """Team file; missing if the scenario has no team."""
        return self.root / "team.toml"

    @property
    def errors(self) -> Path:
        """Log of the commands' standard error."""
        return self.root / "errors.log"

    @property
    def faults(self) -> Path:
        """File of mail and disk faults; missing if the scenario has none."""
        return self.root / "faults.jsonl"

    @property
    def clock(self) -> Clock:
        """Clock of all processes of the run, including the API server."""
        return Clock(file=Path(self.variables[CLOCK_FILE_VARIABLE]))


@contextmanager
def open_environment(scenario: Scenario, seed: int, *, is_kept: bool) -> Iterator[ScenarioEnvironment]:
    """Create the environment of one run of *scenario* and apply its variables to this process until the block ends.

    The environment is then removed unless *is_kept*. Blocks. Raises `OSError`, and `CalledProcessError` if git fails.
    """
    # A short path, because socket paths below it have a length limit.
    root = Path(tempfile.mkdtemp(prefix="coterie-scenario-"))
    environment = ScenarioEnvironment(root=root, variables=_variables(root, seed))
    if any(isinstance(action, IoFault) for action in scenario.actions):
        variables = {**environment.variables, FAULTS_VARIABLE: str(environment.faults)}
        environment = attrs.evolve(environment, variables=variables)
    try:
        with _environ(environment.variables):
            _set_up(environment, scenario)
            yield environment
    finally:
        if not is_kept:
            shutil.rmtree(root)


def _variables(root: Path, seed: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(REMOVED_PREFIXES)}
    return {
        **kept,
        **_IDENTITY,
        HOME_VARIABLE: str(root / "home"),
        CLAUDE_HOME_VARIABLE: str(root / "claude"),
        CLOCK_FILE_VARIABLE: str(root / "clock"),
        SEED_VARIABLE: str(seed),
        # Commands of a scenario find the `coterie` that runs it.
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
        "XDG_RUNTIME_DIR": str(root / "run"),
        "XDG_CACHE_HOME": str(root / "cache"),
    }


@contextmanager
def _environ(variables: Mapping[str, str]) -> Iterator[None]:
    """Replace the environment of this process, which locates sessions by it as the commands do."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _set_up(environment: ScenarioEnvironment, scenario: Scenario) -> None:
    for directory in (environment.project, environment.home, environment.root / "run"):
        directory.mkdir(mode=0o700)
    write_files(environment.project, scenario.workspace.files)
    write_files(environment.home, scenario.workspace.home)
    environment.script.write_text(scenario.script)
    for name, other in scenario.sessions.items():
        environment.script_of(name).write_text(other.script)
    if scenario.settings:
        (environment.home / "settings.toml").write_text(toml_text(scenario.settings))
    if scenario.team is not None:
        environment.team.write_text(toml_text(scenario.team))
    if scenario.workspace.is_git:
        for arguments in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "Begin")):
            subprocess.run(("git", *arguments), cwd=environment.project, check=True)  # noqa: S603, S607 - the user's own git


def write_files(directory: Path, texts: Mapping[str, str]) -> None:
    """Write *texts*, by path below *directory*."""
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
