"""Runs a scenario under random fault plans and checks invariants."""

import re
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from coterie.agents.events.agent_events import Finished, Retrying, ToolStarted
from coterie.mailbox.policy import NEVER_WAKES
from coterie.orchestrator.cli.output import ExitCode
from coterie.orchestrator.gateway.cost_totals import sum_costs
from coterie.scenarios.api_server.script.located_yaml import LineInvalid
from coterie.scenarios.runner.environment import open_environment
from coterie.scenarios.runner.expectations import CommandEnds, FileIs
from coterie.scenarios.runner.fuzz.random_faults import FaultTargets, RandomFaultPlan, draw_plan
from coterie.scenarios.runner.parsing.parse_errors import ScenarioInvalid
from coterie.scenarios.runner.run_record import ScenarioFailure, ScenarioRun, log_tail
from coterie.scenarios.runner.run_scenario import run_scenario
from coterie.scenarios.runner.scenario import Scenario, UserAction
from coterie.session_directory import MAIN

ADMITTED = re.compile(r"\b(could not|cannot|failed)\b")
"""In the lead's last words: what was wanted is not done, and the user is told so."""


def end_state(played: ScenarioRun) -> str:
    """How it ended, in a word: done, told (the lead says that it is not), or the name of an exit code."""
    code = played.exit_codes[-1] if played.exit_codes else None
    if code == ExitCode.DONE:
        return "told" if ADMITTED.search(_final_texts(played)) else "done"
    return "cut off" if code is None else ExitCode(code).name.lower() if code in set(ExitCode) else f"code {code}"


def check_invariants(story: Scenario, played: ScenarioRun) -> list[ScenarioFailure]:
    """All that is not as it must be, although this and that went wrong."""
    reasons = [
        *_unfounded(story, played),
        *_unexplained(played),
        *_lost(played),
        *_doubled(played),
        *_repeated(played),
        *_overspent(story, played),
    ]
    failures = [ScenarioFailure(reason=reason, around=log_tail(played.events)) for reason in reasons]
    return failures + [ScenarioFailure(reason=f"left behind: {finding}") for finding in _left(played)]


def _unfounded(story: Scenario, played: ScenarioRun) -> Iterator[str]:
    """Who says that it is done must have done it."""
    if end_state(played) == "done":
        for each in story.expectations:
            if isinstance(each, FileIs | CommandEnds):
                for failure in each.check(played):
                    yield f"it ended as done ({_final_texts(played)!r}), but {failure.reason}"


def _unexplained(played: ScenarioRun) -> Iterator[str]:
    """Who fails says why."""
    if end_state(played) not in ("done", "told") and not played.errors.strip():
        yield f"it ended with {played.exit_codes[-1]}, and nobody says why"


def _lost(played: ScenarioRun) -> Iterator[str]:
    """What was stored was delivered, or is dead; or it still waits, if the session has not come to its end."""
    if end_state(played) not in ("done", "told"):
        return
    gone = {(each.mailbox, each.id) for each in played.mail if each.kind in ("delivered", "dead")}
    for each in played.mail:
        if each.kind == "stored" and (each.mailbox, each.id) not in gone:
            assert each.envelope is not None
            if each.envelope.kind not in NEVER_WAKES:
                yield f"{each.envelope.kind} {each.id} from {each.envelope.sender.name} to {each.mailbox} is lost"


def _doubled(played: ScenarioRun) -> Iterator[str]:
    delivered = Counter((each.mailbox, each.id) for each in played.mail if each.kind == "delivered")
    for (mailbox, id_), count in delivered.items():
        if count > 1:
            yield f"message {id_} was delivered to {mailbox} {count} times"


def _repeated(played: ScenarioRun) -> Iterator[str]:
    """No call is run twice, and no task that was finished is done again."""
    calls = Counter((each.agent, each.event.id) for each in played.events if isinstance(each.event, ToolStarted))
    for (agent, id_), count in calls.items():
        if count > 1:
            yield f"{agent} ran the call {id_} {count} times"
    ends = Counter(each.agent for each in played.events if each.agent != MAIN and _is_work_done(each.event))
    for agent, count in ends.items():
        if count > 1:
            yield f"{agent} finished its task {count} times"


def _overspent(story: Scenario, played: ScenarioRun) -> Iterator[str]:
    cost, limit = sum_costs(played.ledger).cost, story.limits.dollars
    if limit is not None and cost > limit:
        yield f"it cost ${cost}, over the ${limit} that it may"


def _left(played: ScenarioRun) -> Iterator[str]:
    """What the doctor finds, but for files that were torn on purpose, which it must find."""
    torn = [strike.what.partition(": ")[2] for strike in played.strikes if strike.what.startswith("torn_write")]
    for finding in played.findings:
        if not any(finding.startswith(f"{path}: ") for path in torn):
            yield finding


def _final_texts(played: ScenarioRun) -> str:
    ends = [each.event for each in played.events if each.agent == MAIN and isinstance(each.event, Finished)]
    return ends[-1].result if ends else ""


def _is_work_done(event: object) -> bool:
    """Whether a run came to the end of its task by a turn; one that a crash left with all said makes none."""
    return isinstance(event, Finished) and event.reason == "completed" and event.turns > 0


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
