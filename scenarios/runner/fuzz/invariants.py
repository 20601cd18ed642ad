"""Invariants of every scenario run, whatever faults were injected."""

import re
from collections import Counter
from collections.abc import Iterator

from coterie.agents.events.agent_events import Finished, ToolStarted
from coterie.mailbox.policy import NEVER_WAKES
from coterie.orchestrator.cli.output import ExitCode
from coterie.orchestrator.gateway.cost_totals import sum_costs
from coterie.scenarios.runner.expectations import CommandEnds, FileIs
from coterie.scenarios.runner.run_record import ScenarioFailure, ScenarioRun, log_tail
from coterie.scenarios.runner.scenario import Scenario
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
