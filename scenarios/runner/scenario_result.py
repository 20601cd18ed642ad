"""Result of a scenario over one or several identical runs."""

import time
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.scenarios.runner.canonical_log import canonical_log, first_difference
from coterie.scenarios.runner.environment import open_environment
from coterie.scenarios.runner.run_record import ScenarioFailure, ScenarioRun
from coterie.scenarios.runner.run_scenario import run_scenario
from coterie.scenarios.runner.scenario import Scenario


@attrs.frozen(kw_only=True)
class ScenarioResult:
    """What came of one story, or of several plays of it."""

    story: Scenario
    seed: int
    seconds: float
    """Of all plays."""
    plays: int
    failures: tuple[ScenarioFailure, ...]
    sessions: tuple[str, ...]
    log: tuple[str, ...]
    """The canonical one of the last play."""
    strikes: tuple[str, ...] = ()
    """What went wrong with mail and files in the last play, and in which process."""
    place: Path | None = None
    """Where everything of the last play is, if it was kept."""

    @property
    def passed(self) -> bool:
        """Whether all is as the story wants it."""
        return not self.failures

    def to_mapping(self) -> dict[str, Any]:
        """For programs."""
        return {
            "name": self.story.name,
            "file": str(self.story.source),
            "passed": self.passed,
            "seconds": round(self.seconds, 3),
            "seed": self.seed,
            "plays": self.plays,
            "failures": [attrs.asdict(failure) for failure in self.failures],
            "sessions": list(self.sessions),
            "strikes": list(self.strikes),
            "place": None if self.place is None else str(self.place),
            "log": list(self.log),
        }


def run_repeatedly(story: Scenario, seed: int, *, repeat: int = 1, is_kept: bool = False) -> ScenarioResult:
    """Play *story*, *repeat* times or until it fails; a play that goes otherwise than the first is a failure.

    Blocks until nothing of it is left; so does an interruption. Raises `OSError`.
    """
    began = time.monotonic()
    first: tuple[str, ...] | None = None
    for number in range(1, repeat + 1):
        place, played, failures, log = _run_once(story, seed, is_kept=is_kept)
        if first is not None and (difference := first_difference(first, log)) is not None:
            failures.append(ScenarioFailure(reason=f"play {number} was not as the first: {difference}"))
        first = first or log
        if failures:
            break
    return ScenarioResult(
        story=story,
        seed=seed,
        seconds=time.monotonic() - began,
        plays=number,
        failures=tuple(failures),
        sessions=played.sessions,
        log=log,
        strikes=tuple(f"{strike.by}: {strike.what}" for strike in played.strikes),
        place=place if is_kept else None,
    )


def _run_once(
    story: Scenario, seed: int, *, is_kept: bool
) -> tuple[Path, ScenarioRun, list[ScenarioFailure], tuple[str, ...]]:
    with open_environment(story, seed, is_kept=is_kept) as stage:
        played, failures = trio.run(partial(run_scenario, story, stage))
        failures += [failure for each in story.expectations for failure in each.check(played)]
        return stage.root, played, failures, canonical_log(played, stage.root)
