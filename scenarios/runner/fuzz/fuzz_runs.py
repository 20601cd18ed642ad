"""Runs a scenario under random fault plans and checks invariants."""

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.events.agent_events import Retrying
from coterie.scenarios.api_server.script.located_yaml import LineInvalid
from coterie.scenarios.runner.environment import open_environment
from coterie.scenarios.runner.fuzz.invariants import check_invariants, end_state
from coterie.scenarios.runner.fuzz.random_faults import FaultTargets, RandomFaultPlan, draw_plan
from coterie.scenarios.runner.parsing.parse_errors import ScenarioInvalid
from coterie.scenarios.runner.run_record import ScenarioFailure, ScenarioRun
from coterie.scenarios.runner.run_scenario import run_scenario
from coterie.scenarios.runner.scenario import Scenario, UserAction

RESUMES = 3
"""How often a session that was cut off is resumed."""


@attrs.frozen(kw_only=True)
class FuzzTrial:
    """What came of a story under one plan."""

    story: Scenario
    plan: RandomFaultPlan
    seconds: float
    end: str
    struck: tuple[str, ...]
    """The kinds of those faults that met something."""
    failures: tuple[ScenarioFailure, ...]
    place: Path | None = None

    def to_mapping(self) -> dict[str, Any]:
        """For programs."""
        return {
            "seed": self.plan.seed,
            "passed": not self.failures,
            "end": self.end,
            "seconds": round(self.seconds, 3),
            "faults": list(self.plan.faults),
            "struck": list(self.struck),
            "failures": [attrs.asdict(failure) for failure in self.failures],
            "place": None if self.place is None else str(self.place),
        }


def find_targets(story: Scenario, seed: int = 0) -> FaultTargets:
    """What can be struck in *story*: it is played once, without any fault. Blocks.

    Raises `ScenarioInvalid` if it cannot do without its faults, and `OSError`.
    """
    undisturbed = attrs.evolve(story, acts=tuple(act for act in story.acts if isinstance(act, UserAction)))
    with open_environment(undisturbed, seed, is_kept=False) as stage:
        played, failures = trio.run(partial(run_scenario, undisturbed, stage))
        failures += check_invariants(story, played)
    if failures or end_state(played) != "done":
        reason = failures[0].reason if failures else f"it ends as {end_state(played)!r}"
        raise ScenarioInvalid(story.source, (LineInvalid(1, f"without faults it must end as done, but: {reason}"),))
    return FaultTargets.of(story, played)


def run_plans(story: Scenario, scene: FaultTargets, seeds: range, *, is_kept: bool = False) -> Iterator[FuzzTrial]:
    """Play *story* under the plan of each of *seeds*. Blocks; raises `OSError`."""
    for seed in seeds:
        yield run_plan(story, draw_plan(seed, scene), is_kept=is_kept)


def run_plan(story: Scenario, plan: RandomFaultPlan, *, is_kept: bool = False) -> FuzzTrial:
    """Play *story* under *plan*. Blocks until nothing of it is left; raises `OSError`."""
    began, disturbed = time.monotonic(), plan.apply_to(story)
    with open_environment(disturbed, plan.seed, is_kept=is_kept) as stage:
        played, failures = trio.run(partial(run_scenario, disturbed, stage, resumes=RESUMES))
        # What did not meet anything is no fault of the team's.
        failures = [failure for failure in failures if failure not in played.missed]
        failures += check_invariants(story, played)
    return FuzzTrial(
        story=story,
        plan=plan,
        seconds=time.monotonic() - began,
        end=end_state(played),
        struck=tuple(_applied_faults(plan, played)),
        failures=tuple(failures),
        place=stage.root if is_kept else None,
    )


def count_kinds(trials: list[FuzzTrial]) -> Counter[str]:
    """How often each kind of fault was struck."""
    return Counter(kind for trial in trials for kind in trial.struck)


def _applied_faults(plan: RandomFaultPlan, played: ScenarioRun) -> Iterator[str]:
    lines = iter(act.line for act in plan.actions())
    missed = {failure.line for failure in played.missed}
    is_refused = any(isinstance(observed.event, Retrying) for observed in played.events)
    for fault, kind in zip(plan.faults, plan.kinds, strict=True):
        if is_refused if "model" in fault else next(lines) not in missed:
            yield kind
