"""Runs a scenario once or several times with the same seed, and returns the result with a canonical log.

The canonical log is identical for every run with the same seed. It has the events of each agent in recorded order,
the end state of each agent process, the mail by sender and recipient, and the total cost. It omits everything that
depends on timing, such as retries and progress summaries.
"""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import msgspec
import trio

from coterie.agents.events.agent_events import Finished
from coterie.agents.events.event_reader import MailDelivered, MessageRecorded, SessionEvent
from coterie.agents.events.root_events import AgentChanged
from coterie.mailbox.policy import NEVER_WAKES
from coterie.orchestrator.gateway.cost_totals import sum_costs
from coterie.orchestrator.session.overview import END_STATES
from coterie.scenarios.runner.environment import open_environment
from coterie.scenarios.runner.run_record import ScenarioFailure, ScenarioRun
from coterie.scenarios.runner.run_scenario import run_scenario
from coterie.scenarios.runner.scenario import Scenario
from coterie.session_directory import project_slug


@attrs.frozen(kw_only=True)
class ScenarioResult:
    """Result of one or more runs of a scenario with the same seed."""

    scenario: Scenario
    seed: int
    seconds: float
    """Duration of all runs together, in seconds."""
    runs: int
    failures: tuple[ScenarioFailure, ...]
    sessions: tuple[str, ...]
    log: tuple[str, ...]
    """Log of the last run without times and random ids, so that equal runs have equal logs (`canonical_log`)."""
    injected_faults: tuple[str, ...] = ()
    """Mail and disk faults injected in the last run, each as `PROCESS: FAULT`."""
    directory: Path | None = None
    """Directory with workspace and session files of the last run; None if it was deleted."""

    @property
    def passed(self) -> bool:
        """True if there is no failure: all expectations met, all faults and actions carried out, all logs equal."""
        return not self.failures

    def to_mapping(self) -> dict[str, Any]:
        """Return this result as JSON data, for the output of `coterie scenario run --json`."""
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
    """Run *scenario* *repeat* times, or until a run fails or its log differs from the first log; return the result.

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
            failures.append(ScenarioFailure(reason=f"the log of run {number} differs from run 1: {difference}"))
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


_TIMED = frozenset(
    {
        "text",
        "retrying",
        "progress",
        "replied",
        "tool_started",
        "tool_ended",
        "window_filling",
        "agent_changed",
        "cleaned_up",
    }
)
"""Event kinds left out of the log: number or order depends on timing, or `message` events have the same content."""
_LEFT_OUT = frozenset({"v", "at", "session", "agent", "kind", "tools", "usage", "seconds", "cost_usd", "result"})
"""Event fields left out of the log, because they contain times or amounts, or repeat other events."""
_IDS = re.compile(
    r"\b(?:[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"  # messages
    r"|\d{8}-\d{6}-[0-9a-f]{6}"  # sessions
    r"|(?:toolu|msg|req)_\w+)\b"
)
_TIMES = re.compile(
    r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?)?|\b\d+(?:\.\d+)? ?(?:s|ms|seconds|minutes)\b"
)
_PROCESSES = re.compile(r"\b(pid|process) \d+")
_DOLLARS = re.compile(r"(\$|cost_usd=\W*)\d+(?:\.\d+)?")
"""Pattern of costs to mask in events: timing decides which agent pays for a shared cache prefix, but not the sum."""


def canonical_log(run: ScenarioRun, root: Path) -> tuple[str, ...]:
    """Return the canonical log of *run*: lines equal in all runs with this seed, without paths below *root*."""
    return (
        *_agents(run, root),
        *_starts(run.events),
        *_mail(run),
        _cost(run),
    )


def first_difference(one: Iterable[str], other: Iterable[str]) -> str | None:
    """Return a description of the first difference between two logs; None if they are equal."""
    before, after = list(one), list(other)
    for number, (left, right) in enumerate(zip(before, after, strict=False), 1):
        if left != right:
            return f"line {number} was {left!r}, and now is {right!r}"
    if len(before) != len(after):
        longer = max(before, after, key=len)
        return f"one log has the additional line {longer[min(len(before), len(after))]!r}"
    return None


def _agents(run: ScenarioRun, root: Path) -> Iterator[str]:
    by_agent: defaultdict[str, list[SessionEvent]] = defaultdict(list)
    names = _names(run)
    for observed in run.events:
        # An agent that is killed with its root may or may not report its own cancellation.
        is_stop_report = isinstance(event := observed.event, Finished) and event.reason == "cancelled"
        if observed.kind not in _TIMED and not is_stop_report:
            by_agent[observed.agent].append(observed)
    for agent, observed_ones in sorted(by_agent.items()):
        ids: dict[str, str] = {}
        for observed in observed_ones:
            for text in _event_text(observed, names):
                yield f"{agent}: {_normalize(text, root, ids)}"


def _normalize(text: str, root: Path, ids: dict[str, str]) -> str:
    """Return *text* with paths, times, amounts and ids replaced; *ids* has the replacements of earlier ids."""
    for path, name in ((project_slug(root / "project"), "<slug>"), (str(root), "<root>")):
        text = text.replace(path, name)
    text = _IDS.sub(lambda found: ids.setdefault(found[0], f"<id {len(ids) + 1}>"), text)
    text = _PROCESSES.sub(r"\1 <number>", _TIMES.sub("<time>", text))
    return _DOLLARS.sub(r"\1<amount>", text)


def _names(run: ScenarioRun) -> dict[str, str]:
    """Return a name for each message id, such as `message 2 of scout`; numbers count per sender, recipient and kind."""
    names: dict[str, str] = {}
    sent: Counter[tuple[str, str, str]] = Counter()
    for passage in run.mail:
        if passage.kind == "stored" and (envelope := passage.envelope) is not None and envelope.id not in names:
            pair = envelope.sender.name, passage.mailbox, envelope.kind
            sent[pair] += 1
            names[envelope.id] = f"{envelope.kind} {sent[pair]} of {envelope.sender.name}"
    return names


def _event_text(observed: SessionEvent, names: Mapping[str, str]) -> Iterator[str]:
    if isinstance(event := observed.event, MessageRecorded):
        for block in event.content:
            kept = {key: value for key, value in block.items() if key not in ("type", "signature", "cache_control")}
            yield f"{event.role} {block.get('type')} {_json(kept)}"
        return
    if isinstance(event, MailDelivered):
        # Messages that arrive for the same turn arrive in any order.
        yield f"delivered {', '.join(sorted(names.get(id_, id_) for id_ in event.ids))}"
        return
    members = {key: value for key, value in observed.members.items() if key not in _LEFT_OUT}
    yield f"{observed.kind} {_json(members)}"


def _starts(events: Iterable[SessionEvent]) -> Iterator[str]:
    """Yield one log line for each agent with the states of its process starts and ends, such as `starting#1 done#1`."""
    states_of: defaultdict[str, list[str]] = defaultdict(list)
    for observed in events:
        event = observed.event
        if isinstance(event, AgentChanged) and event.state in ("starting", *END_STATES):
            states_of[event.name].append(f"{event.state}#{event.incarnation}")
    for name, states in sorted(states_of.items()):
        yield f"root: {name} {' '.join(states)}"


def _mail(run: ScenarioRun) -> Iterator[str]:
    """Yield one log line for each sender and recipient, with steps such as `stored message`, but no idle notices."""
    # Idle notices are left out: whether the last one is stored before the session ends depends on timing.
    sent: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for passage in run.mail:
        if (envelope := passage.envelope) is not None and envelope.kind not in NEVER_WAKES:
            steps = sent[envelope.sender.name, passage.mailbox]
            steps[f"{passage.kind} {envelope.id}"] = f"{passage.kind} {envelope.kind}"
    for (sender, recipient), steps in sorted(sent.items()):
        yield f"mail: {sender} -> {recipient}: {', '.join(steps.values())}"


def _cost(run: ScenarioRun) -> str:
    """Return the log line with the cost of all agents started only once; the cost after a kill depends on timing."""
    restarted = {entry.agent for entry in run.ledger if entry.incarnation > 1}
    restarted |= {
        each.event.name for each in run.events if isinstance(each.event, AgentChanged) and each.event.incarnation > 1
    }
    return f"cost: {sum_costs(entry for entry in run.ledger if entry.agent not in restarted).cost}"


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
