"""Runs a scenario file for a test and returns the outcome; used by the pytest plugin."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from coterie.agents.events.event_reader import SessionEvent
from coterie.errors import ConfigInvalid, ReasonError
from coterie.orchestrator.events.session_reader import read_session
from coterie.scenarios.api_server.script.located_yaml import LineInvalid, read_yaml
from coterie.scenarios.runner.parsing.parse_errors import ScenarioInvalid
from coterie.scenarios.runner.parsing.scenario_parser import find_scenario, load_faults, load_scenario
from coterie.scenarios.runner.run_record import ScenarioFailure, failure_lines, without_text_events
from coterie.scenarios.runner.scenario_result import ScenarioResult, run_repeatedly

LARGEST = 1_000_000
"""Maximum size in bytes of a workspace file in `ScenarioOutcome.files`; larger files are left out."""


class ScenarioUnusable(ReasonError):
    """A scenario file is missing or invalid; the user must correct it. The reason names the file and the line."""


@attrs.frozen(kw_only=True)
class ScenarioOutcome:
    """Result of one scenario run, passed or failed, for the checks of a test."""

    name: str
    source: Path
    seed: int
    failures: tuple[ScenarioFailure, ...]
    """Expectations that were not met, and other failures: `reason`, `line` of the file, and log lines `around` it."""
    events: Sequence[SessionEvent]
    """All events except parts of streamed replies, by session and time: `agent`, `kind`, and `members` as in JSON."""
    files: Mapping[str, str]
    """Texts of the workspace files after the run, by relative path, without `.git`, links and files above `LARGEST`."""
    log: tuple[str, ...]
    """Canonical log of the run: lines without times and ids, which are equal for every run with this seed."""
    seconds: float

    @property
    def passed(self) -> bool:
        """True if all expectations were met and the run had no other failure."""
        return not self.failures

    def __str__(self) -> str:
        if self.passed:
            return f"scenario {self.name} passed"
        lines = [f"scenario {self.name} failed", *failure_lines(self.failures, self.source)]
        return "\n".join([*lines, f"  again: coterie scenario run {self.source} --seed {self.seed} --keep"])


@attrs.define(eq=False)
class ScenarioFailed(AssertionError):
    """A scenario run failed, for example because an expectation was not met; the text lists all failures."""

    outcome: ScenarioOutcome

    def __str__(self) -> str:
        return str(self.outcome)


def read_name(path: Path) -> str | None:
    """Return the name of the scenario in *path*; None for a script (replies only). Raises `ScenarioUnusable`."""
    if _is_script(path):
        return None
    try:
        return load_scenario(path).name
    except ScenarioInvalid as exc:
        raise ScenarioUnusable(str(exc)) from exc


def find_file(name: str | Path, directories: Sequence[Path]) -> Path:
    """Return the path of *name*: a file in *directories*, a path, or a shipped scenario. Raises `ScenarioUnusable`."""
    found = next((path for directory in directories if (path := directory / name).is_file()), None)
    if found is not None:
        return found
    try:
        return find_scenario(str(name))
    except ConfigInvalid as exc:
        raise ScenarioUnusable(str(exc)) from exc


def run_file(path: Path, seed: int, *, faults: Path | None = None) -> ScenarioOutcome:
    """Run the scenario file *path* once, also with the faults in the file *faults*, and return the outcome.

    Blocks until all processes have ended. Raises `ScenarioUnusable` before anything starts, and `OSError`.
    """
    try:
        scenario = load_scenario(path)
        scenario = scenario if faults is None else load_faults(faults, scenario)
    except ScenarioInvalid as exc:
        raise ScenarioUnusable(str(exc)) from exc
    result = run_repeatedly(scenario, seed, is_kept=True)
    assert result.directory is not None, "is_kept was passed"
    try:
        return ScenarioOutcome(
            name=scenario.name,
            source=path,
            seed=seed,
            failures=result.failures,
            events=_events(result, result.directory),
            files=_files(result.directory / "project"),
            log=result.log,
            seconds=result.seconds,
        )
    finally:
        shutil.rmtree(result.directory)


def _events(result: ScenarioResult, root: Path) -> tuple[SessionEvent, ...]:
    directories = [path for id_ in result.sessions for path in root.glob(f"home/projects/*/sessions/{id_}")]
    return tuple(event for directory in directories for event in without_text_events(read_session(directory)))


def _files(project: Path) -> dict[str, str]:
    texts = {}
    for path in sorted(project.rglob("*")):
        name = path.relative_to(project)
        if ".git" in name.parts or path.is_symlink() or not path.is_file() or path.stat().st_size > LARGEST:
            continue
        texts[str(name)] = path.read_text(errors="replace")
    return texts


def _is_script(path: Path) -> bool:
    """True if the file *path* contains only a script (a list of model replies for each agent), and no scenario."""
    try:
        root = read_yaml(path.read_text(), "the file")
    except (OSError, UnicodeDecodeError, LineInvalid):
        return False
    return (
        root is not None
        and isinstance(root.value, dict)
        and all(isinstance(node.value, tuple) for node in root.value.values())
    )
