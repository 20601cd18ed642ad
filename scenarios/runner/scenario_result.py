"""Result of a scenario over one or several identical runs."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.scenarios.runner.canonical_log import canonical_log, first_difference
from coterie.scenarios.runner.environment import open_environment
from coterie.scenarios.runner.run_record import ScenarioFailure
from coterie.scenarios.runner.run_scenario import run_scenario
from coterie.scenarios.runner.scenario import Scenario


@attrs.frozen(kw_only=True)
class ScenarioResult:
    """Result of a scenario, over one or more runs."""

    scenario: Scenario
    seed: int
    seconds: float
    """Duration of all runs."""
    runs: int
    failures: tuple[ScenarioFailure, ...]
    sessions: tuple[str, ...]
    log: tuple[str, ...]
    """Log of the last run without times and random ids, so that equal runs have equal logs (`canonical_log`)."""
    injected_faults: tuple[str, ...] = ()
    """Mail and disk faults applied in the last run, with the process."""
    directory: Path | None = None
    """Directory of the last run, if it was kept."""

    @property
    def passed(self) -> bool:
        """True if all expectations were met."""
        return not self.failures

    def to_mapping(self) -> dict[str, Any]:
        """Return the result as JSON data."""
        return {
            "name": self.scenario.name,
            "file": str(self.scenario.source),
            "passed": self.passed,
            "seconds": round(self.seconds, 3),
            "seed": self.seed,
            "plays": self.runs,
            "failures": [attrs.asdict(failure) for failure in self.failures],
            "sessions": list(self.sessions),
            "strikes": list(self.injected_faults),
            "place": None if self.directory is None else str(self.directory),
            "log": list(self.log),
        }


def run_repeatedly(scenario: Scenario, seed: int, *, repeat: int = 1, is_kept: bool = False) -> ScenarioResult:
    """Run *scenario* *repeat* times or until it fails; a log that differs from the first run's is a failure.

    Blocks until all processes have ended, also when interrupted. Raises `OSError`.
    """
    began = time.monotonic()
    first: tuple[str, ...] | None = None
    for number in range(1, repeat + 1):
        with open_environment(scenario, seed, is_kept=is_kept) as environment:
            run, failures = trio.run(partial(run_scenario, scenario, environment))
            failures += [failure for each in scenario.expectations for failure in each.check(run)]
            log = canonical_log(run, environment.root)
        if first is not None and (difference := first_difference(first, log)) is not None:
            failures.append(ScenarioFailure(reason=f"run {number} differs from the first: {difference}"))
        first = first or log
        if failures:
            break
    return ScenarioResult(
        scenario=scenario,
        seed=seed,
        seconds=time.monotonic() - began,
        runs=number,
        failures=tuple(failures),
        sessions=run.sessions,
        log=log,
        injected_faults=tuple(f"{fault.by}: {fault.what}" for fault in run.injected_faults),
        directory=environment.root if is_kept else None,
    )
