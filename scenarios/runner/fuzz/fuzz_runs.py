"""Runs a scenario under random fault plans (lists of faults to inject), and checks what must hold after any fault."""

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

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

Item = TypeVar("Item")

ADMITTED = re.compile(r"\b(could not|cannot|failed)\b")
"""Pattern of words in the final text of the lead (first agent) that admit that the task is not done."""


def end_state(run: ScenarioRun) -> str:
    """Return how *run* ended: `done`, `told` (lead admits failure), `cut off` (timeout), or name of its exit code."""
    code = run.exit_codes[-1] if run.exit_codes else None
    if code == ExitCode.DONE:
        return "told" if ADMITTED.search(_final_texts(run)) else "done"
    return "cut off" if code is None else ExitCode(code).name.lower() if code in set(ExitCode) else f"code {code}"


def check_invariants(scenario: Scenario, run: ScenarioRun) -> list[ScenarioFailure]:
    """Return a failure for each violation by *run* of conditions that hold under any faults, such as no lost mail."""
    failures = [ScenarioFailure(reason=reason, around=log_tail(run.events)) for reason in _violations(scenario, run)]
    # A fault may tear a file on purpose.
    torn = [fault.what.partition(": ")[2] for fault in run.injected_faults if fault.what.startswith("torn_write")]
    found = [finding for finding in run.findings if not any(finding.startswith(f"{path}: ") for path in torn)]
    return failures + [ScenarioFailure(reason=f"left behind after the run: {finding}") for finding in found]


def _violations(scenario: Scenario, run: ScenarioRun) -> Iterator[str]:
    end = end_state(run)
    if end == "done":
        checks = (each for each in scenario.expectations if isinstance(each, FileIs | CommandEnds))
        for failure in (failure for each in checks for failure in each.check(run)):
            yield f"the run ended as done ({_final_texts(run)!r}), but {failure.reason}"
    elif end != "told" and not run.errors.strip():
        yield f"the run ended with exit code {run.exit_codes[-1]}, but without an error text"
    yield from _mail_violations(run, is_complete=end in ("done", "told"))
    calls = ((each.agent, each.event.id) for each in run.events if isinstance(each.event, ToolStarted))
    for (agent, call), count in _repeated(calls):
        yield f"{agent} ran the tool call {call} {count} times; expected once"
    # A run restarted after its final reply has no turn.
    ends = ((each.agent, event) for each in run.events if isinstance(event := each.event, Finished))
    finished = (agent for agent, event in ends if agent != MAIN and event.reason == "completed" and event.turns)
    for agent, count in _repeated(finished):
        yield f"{agent} finished its task {count} times; expected once"
    cost, limit = sum_costs(run.ledger).cost, scenario.limits.dollars
    if limit is not None and cost > limit:
        yield f"the cost is ${cost}, over the limit of ${limit}"


def _mail_violations(run: ScenarioRun, *, is_complete: bool) -> Iterator[str]:
    """Yield a text for each message delivered twice, and if the session *is_complete*, for each lost message."""
    gone = {(each.mailbox, each.id) for each in run.mail if each.kind in ("delivered", "dead")}
    for each in run.mail if is_complete else ():
        if each.kind == "stored" and (each.mailbox, each.id) not in gone:
            assert each.envelope is not None
            if each.envelope.kind not in NEVER_WAKES:
                yield f"{each.envelope.kind} {each.id} from {each.envelope.sender.name} to {each.mailbox} was lost"
    delivered = ((each.mailbox, each.id) for each in run.mail if each.kind == "delivered")
    for (mailbox, id_), count in _repeated(delivered):
        yield f"message {id_} was delivered to {mailbox} {count} times; expected once"


def _repeated(items: Iterable[Item]) -> Iterator[tuple[Item, int]]:
    """Yield each item that occurs more than once in *items*, with the number of its occurrences."""
    return ((item, count) for item, count in Counter(items).items() if count > 1)


def _final_texts(run: ScenarioRun) -> str:
    ends = [each.event for each in run.events if each.agent == MAIN and isinstance(each.event, Finished)]
    return ends[-1].result if ends else ""


RESUMES = 3
"""Maximum number of resumes of a session in one run, if faults interrupt it."""


@attrs.frozen(kw_only=True)
class FuzzTrial:
    """Result of one run of a scenario under one random fault plan."""

    plan: RandomFaultPlan
    seconds: float
    end: str
    applied: tuple[str, ...]
    """Kinds of those faults of the plan that took effect, such as `kill root`."""
    failures: tuple[ScenarioFailure, ...]
    directory: Path | None = None

    def to_mapping(self) -> dict[str, Any]:
        """Return this result as JSON data, for the output of `coterie scenario fuzz --json`."""
        return {
            "seed": self.plan.seed,
            "passed": not self.failures,
            "end": self.end,
            "seconds": round(self.seconds, 3),
            "faults": list(self.plan.faults),
            "struck": list(self.applied),
            "failures": [attrs.asdict(failure) for failure in self.failures],
            "place": None if self.directory is None else str(self.directory),
        }


def find_targets(scenario: Scenario) -> FaultTargets:
    """Run *scenario* once without faults and return the events and processes that faults can hit. Blocks.

    Raises `ScenarioInvalid` if this run fails, so that the scenario cannot be used for fuzzing, and `OSError`.
    """
    actions = tuple(action for action in scenario.actions if isinstance(action, UserAction))
    undisturbed = attrs.evolve(scenario, actions=actions)
    with open_environment(undisturbed, 0, is_kept=False) as environment:
        run, failures = trio.run(partial(run_scenario, undisturbed, environment))
        failures += check_invariants(scenario, run)
    if failures or end_state(run) != "done":
        reason = failures[0].reason if failures else f"it ends as {end_state(run)!r}"
        problem = LineInvalid(1, f"fuzzing needs a scenario that succeeds without faults, but {reason}; correct it")
        raise ScenarioInvalid(scenario.source, (problem,))
    return FaultTargets.of(scenario, run)


def run_plans(scenario: Scenario, targets: FaultTargets, seeds: range, *, is_kept: bool = False) -> Iterator[FuzzTrial]:
    """Run *scenario* once for each of *seeds*, under the fault plan of this seed, and yield each result. Blocks."""
    for seed in seeds:
        yield run_plan(scenario, draw_plan(seed, targets), is_kept=is_kept)


def run_plan(scenario: Scenario, plan: RandomFaultPlan, *, is_kept: bool = False) -> FuzzTrial:
    """Run *scenario* once with the faults of *plan*, check all invariants, and return the result. Blocks."""
    began, disturbed = time.monotonic(), plan.apply_to(scenario)
    with open_environment(disturbed, plan.seed, is_kept=is_kept) as environment:
        run, failures = trio.run(partial(run_scenario, disturbed, environment, resumes=RESUMES))
        # A fault that hit nothing is not a failure of the team.
        failures = [failure for failure in failures if failure not in run.missed]
        failures += check_invariants(scenario, run)
    return FuzzTrial(
        plan=plan,
        seconds=time.monotonic() - began,
        end=end_state(run),
        applied=tuple(_applied_faults(plan, run)),
        failures=tuple(failures),
        directory=environment.root if is_kept else None,
    )


def count_kinds(trials: list[FuzzTrial]) -> Counter[str]:
    """Return the number of faults that took effect in *trials*, by kind, such as `kill root`."""
    return Counter(kind for trial in trials for kind in trial.applied)


def _applied_faults(plan: RandomFaultPlan, run: ScenarioRun) -> Iterator[str]:
    lines = iter(action.line for action in plan.actions())
    missed = {failure.line for failure in run.missed}
    is_refused = any(isinstance(observed.event, Retrying) for observed in run.events)
    for fault, kind in zip(plan.faults, plan.kinds, strict=True):
        if is_refused if "model" in fault else next(lines) not in missed:
            yield kind
