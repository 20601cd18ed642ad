"""Runs a scenario from a test and returns its outcome."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from coterie.agents.events.event_reader import SessionEvent
from coterie.errors import ConfigInvalid
from coterie.orchestrator.events.session_reader import read_session
from coterie.scenarios.api_server.script.located_yaml import LineInvalid, read_yaml
from coterie.scenarios.runner.parsing.parse_errors import ScenarioInvalid
from coterie.scenarios.runner.parsing.scenario_parser import find_scenario, load_faults, load_scenario
from coterie.scenarios.runner.run_record import ScenarioFailure, without_text_events
from coterie.scenarios.runner.scenario_result import ScenarioResult, run_repeatedly

LARGEST = 1_000_000
"""Bytes of a file that a test gets to see."""


@attrs.define(eq=False)
class ScenarioUnusable(Exception):
    """A file that cannot be played; its user must change it."""

    reason: str
    """With file and line."""

    def __str__(self) -> str:
        return self.reason


@attrs.frozen(kw_only=True)
class ScenarioOutcome:
    """What came of one play."""

    name: str
    source: Path
    seed: int
    failures: tuple[ScenarioFailure, ...]
    """What was not as it must be: `reason`, `line` of the file, and events `around`."""
    events: Sequence[SessionEvent]
    """All that happened, by time, without the parts of replies: `agent`, `kind`, and `members` as JSON has them."""
    files: Mapping[str, str]
    """The texts that were in the workspace in the end, by path; nothing below `.git`."""
    log: tuple[str, ...]
    """The same in every play with this seed."""
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether everything is as the file wants it."""
        return not self.failures

    def __str__(self) -> str:
        if self.passed:
            return f"scenario {self.name} passed"
        lines = [f"scenario {self.name} did not go as it must"]
        shown: tuple[str, ...] = ()
        for failure in self.failures:
            where = "" if failure.line is None else f"{self.source}, line {failure.line}: "
            # Events that are the same for several are shown once.
            around = failure.around if failure.around != shown else ()
            lines += [f"  {where}{failure.reason}", *(f"    {line}" for line in around)]
            shown = failure.around
        return "\n".join([*lines, f"  again: coterie scenario run {self.source} --seed {self.seed} --keep"])


@attrs.define(eq=False)
class ScenarioFailed(AssertionError):
    """A scenario did not go as it must."""

    outcome: ScenarioOutcome

    def __str__(self) -> str:
        return str(self.outcome)


def read_name(path: Path) -> str | None:
    """What the scenario in *path* is called; None if a script is in it. Blocks. Raises `ScenarioUnusable`."""
    if _is_script(path):
        return None
    try:
        return load_scenario(path).name
    except ScenarioInvalid as exc:
        raise ScenarioUnusable(str(exc)) from exc


def find_file(name: str | Path, directories: Sequence[Path]) -> Path:
    """The file *name* in the first of *directories* that has it, or the scenario of that name that ships.

    Raises `ScenarioUnusable`.
    """
    found = next((path for directory in directories if (path := directory / name).is_file()), None)
    if found is not None:
        return found
    try:
        return find_scenario(str(name))
    except ConfigInvalid as exc:
        raise ScenarioUnusable(str(exc)) from exc


def run_file(path: Path, seed: int, *, faults: Path | None = None) -> ScenarioOutcome:
    """Play the scenario in *path*, with the *faults* of another file too.

    Blocks until nothing of it is left. Raises `ScenarioUnusable` before anything starts, and `OSError`.
    """
    try:
        story = load_scenario(path)
        story = story if faults is None else load_faults(faults, story)
    except ScenarioInvalid as exc:
        raise ScenarioUnusable(str(exc)) from exc
    outcome = run_repeatedly(story, seed, is_kept=True)
    assert outcome.place is not None, "it was kept"
    try:
        return ScenarioOutcome(
            name=story.name,
            source=path,
            seed=seed,
            failures=outcome.failures,
            events=_events(outcome, outcome.place),
            files=_files(outcome.place / "project"),
            log=outcome.log,
            seconds=outcome.seconds,
        )
    finally:
        shutil.rmtree(outcome.place)


def _events(outcome: ScenarioResult, place: Path) -> tuple[SessionEvent, ...]:
    directories = [path for id_ in outcome.sessions for path in place.glob(f"home/projects/*/sessions/{id_}")]
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
    """Whether *path* holds lists of replies and nothing else."""
    try:
        root = read_yaml(path.read_text(), "the file")
    except (OSError, UnicodeDecodeError, LineInvalid):
        return False
    return (
        root is not None
        and isinstance(root.value, dict)
        and all(isinstance(node.value, tuple) for node in root.value.values())
    )
