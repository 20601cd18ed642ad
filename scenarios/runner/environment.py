"""Isolated environment of a scenario run: temporary directories, environment variables and clock."""

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
    """Return *mapping* as TOML text: one line for each key, nested tables inline. No value may be None."""
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
"""Prefixes of environment variables that configure the user's own programs; a run does not inherit them."""
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
    """Directories and environment variables of one scenario run; all files are below the temporary directory `root`."""

    root: Path
    variables: Mapping[str, str]
    """All environment variables of the processes of the run."""

    @property
    def project(self) -> Path:
        """Directory of the run's workspace, in which its commands and agents work."""
        return self.root / "project"

    @property
    def home(self) -> Path:
        """Directory with the user files and sessions of the run; the value of `COTERIE_HOME` for its processes."""
        return self.root / "home"

    @property
    def script(self) -> Path:
        """File with the script (scripted model replies) of the first session."""
        return self.root / "script.yaml"

    def script_of(self, session: str) -> Path:
        """Return the path of the script (scripted model replies) of the additional session *session*."""
        return self.root / f"script-{session}.yaml"

    @property
    def team(self) -> Path:
        """Team file, which lists the agents of the first session; missing if the scenario has no team."""
        return self.root / "team.toml"

    @property
    def errors(self) -> Path:
        """File that collects the standard error of all commands of the run."""
        return self.root / "errors.log"

    @property
    def faults(self) -> Path:
        """File with rules for the mail and disk faults to inject; missing if the scenario has no such faults."""
        return self.root / "faults.jsonl"

    @property
    def clock(self) -> Clock:
        """Clock of all processes of the run, including the API server; a fault can advance it."""
        return Clock(file=Path(self.variables[CLOCK_FILE_VARIABLE]))


@contextmanager
def open_environment(scenario: Scenario, seed: int, *, is_kept: bool) -> Iterator[ScenarioEnvironment]:
    """Create the files for one run of *scenario*, and set the run's environment variables in this process.

    The end of the block undoes both, but keeps the files if *is_kept*. Blocks. Raises `OSError`, `CalledProcessError`.
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
    """Replace all environment variables of this process by *variables*; restore them at the end of the block."""
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
    """Write *texts*, a mapping from relative path to content, as files below *directory*; create missing parents."""
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
