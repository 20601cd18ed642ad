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
    """One key a line; tables within it stand inline. Nothing in it is None."""
    return "".join(f"{_toml_string(key)} = {_toml_value(value)}\n" for key, value in mapping.items())


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_toml_string(key)} = {_toml_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return _toml_string(value)


def _toml_string(value: object) -> str:
    # Texts, numbers and truth are written as JSON writes them, but for one control character.
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


SEED_VARIABLE = "COTERIE_SEED"
REMOVED_PREFIXES = ("COTERIE_", "CLAUDE_", "ANTHROPIC_", "GIT_")
"""Variables with these beginnings say something of the user's own sessions, and are not handed down."""
_IDENTITY = {
    **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "Coterie"),
    **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "coterie@localhost"),
    # Fixed, so that commits have the same names in every play.
    **dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-01-01T00:00:00+0000"),
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}


@attrs.frozen(kw_only=True)
class ScenarioEnvironment:
    """The directories of one play."""

    root: Path
    environment: Mapping[str, str]
    """Of every command of the play."""

    @property
    def project(self) -> Path:
        """Where the team works."""
        return self.root / "project"

    @property
    def home(self) -> Path:
        """`COTERIE_HOME`."""
        return self.root / "home"

    @property
    def script(self) -> Path:
        """What the model says."""
        return self.root / "script.yaml"

    def script_of(self, session: str) -> Path:
        """What the model says in another session."""
        return self.root / f"script-{session}.yaml"

    @property
    def team(self) -> Path:
        """The team file, if the story has one."""
        return self.root / "team.toml"

    @property
    def errors(self) -> Path:
        """What commands write to standard error."""
        return self.root / "errors.log"

    @property
    def faults(self) -> Path:
        """The orders for what goes wrong with mail and files, if the story has any."""
        return self.root / "faults.jsonl"

    @property
    def clock(self) -> Clock:
        """The clock of all processes of the play, the server's too."""
        return Clock(file=Path(self.environment[CLOCK_FILE_VARIABLE]))


@contextmanager
def open_environment(story: Scenario, seed: int, *, is_kept: bool) -> Iterator[ScenarioEnvironment]:
    """Set everything up for one play of *story*, and be in its environment until the block ends.

    Then all of it is removed, unless it *is_kept*. Blocks; raises `OSError`, and `CalledProcessError` without git.
    """
    # Short, as sockets are below it.
    root = Path(tempfile.mkdtemp(prefix="coterie-scenario-"))
    stage = ScenarioEnvironment(root=root, environment=_environment(root, seed))
    if any(isinstance(act, IoFault) for act in story.acts):
        stage = attrs.evolve(stage, environment={**stage.environment, FAULTS_VARIABLE: str(stage.faults)})
    try:
        with _environ(stage.environment):
            _set_up(stage, story)
            yield stage
    finally:
        if not is_kept:
            shutil.rmtree(root)


def _environment(root: Path, seed: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(REMOVED_PREFIXES)}
    return {
        **kept,
        **_IDENTITY,
        HOME_VARIABLE: str(root / "home"),
        CLAUDE_HOME_VARIABLE: str(root / "claude"),
        CLOCK_FILE_VARIABLE: str(root / "clock"),
        SEED_VARIABLE: str(seed),
        # So that commands of a story find the program that plays it.
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
        "XDG_RUNTIME_DIR": str(root / "run"),
        "XDG_CACHE_HOME": str(root / "cache"),
    }


@contextmanager
def _environ(environment: Mapping[str, str]) -> Iterator[None]:
    """Be in *environment*: where sessions are is asked of it, by the commands and by us."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _set_up(stage: ScenarioEnvironment, story: Scenario) -> None:
    for directory in (stage.project, stage.home, stage.root / "run"):
        directory.mkdir(mode=0o700)
    _write_all(stage.project, story.workspace.files)
    _write_all(stage.home, story.workspace.home)
    stage.script.write_text(story.script)
    for name, other in story.sessions.items():
        stage.script_of(name).write_text(other.script)
    if story.settings:
        (stage.home / "settings.toml").write_text(toml_text(story.settings))
    if story.team is not None:
        stage.team.write_text(toml_text(story.team))
    if story.workspace.is_git:
        for arguments in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "Begin")):
            subprocess.run(("git", *arguments), cwd=stage.project, check=True)  # noqa: S603, S607 - the user's own git


def _write_all(directory: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
