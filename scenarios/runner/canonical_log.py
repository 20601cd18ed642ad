"""Canonical log of a scenario run, identical for every run with the same seed.

The log holds the events of each agent in recorded order, the outcome of each start, the mail by sender and recipient,
and the total cost. It omits what depends on timing, such as retries and progress summaries.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from coterie.agents.events.agent_events import Finished
from coterie.agents.events.event_reader import MailDelivered, MessageRecorded, SessionEvent
from coterie.agents.events.root_events import AgentChanged
from coterie.mailbox.policy import NEVER_WAKES
from coterie.orchestrator.gateway.cost_totals import sum_costs
from coterie.orchestrator.session.overview import END_STATES
from coterie.scenarios.runner.run_record import ScenarioRun
from coterie.session_directory import project_slug

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
"""Event kinds whose number or order depends on timing; the messages already contain the tool calls."""
_LEFT_OUT = frozenset({"v", "at", "session", "agent", "kind", "tools", "usage", "seconds", "cost_usd", "result"})
"""Event fields that hold times or amounts, or that repeat other events."""
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
"""Costs are masked: which of several agents pays for a shared cache prefix depends on timing; their sum does not."""


def canonical_log(run: ScenarioRun, root: Path) -> tuple[str, ...]:
    """Return the canonical log of *run*, whose environment was the directory *root*."""
    return (
        *_agents(run, root),
        *_starts(run.events),
        *_mail(run),
        _cost(run),
    )


def first_difference(one: Iterable[str], other: Iterable[str]) -> str | None:
    """Describe the first difference between two logs; None if they are equal."""
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
    """Return *text* without paths, times and amounts of this run; *ids* of one agent are numbered by first use."""
    for path, name in ((project_slug(root / "project"), "<slug>"), (str(root), "<root>")):
        text = text.replace(path, name)
    text = _IDS.sub(lambda found: ids.setdefault(found[0], f"<id {len(ids) + 1}>"), text)
    text = _PROCESSES.sub(r"\1 <number>", _TIMES.sub("<time>", text))
    return _DOLLARS.sub(r"\1<amount>", text)


def _names(run: ScenarioRun) -> dict[str, str]:
    """Map each message id to a repeatable name: message kind, number within the sender's messages, and sender."""
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
    """Yield the start and end states of each agent, as the root recorded them."""
    states_of: defaultdict[str, list[str]] = defaultdict(list)
    for observed in events:
        event = observed.event
        if isinstance(event, AgentChanged) and event.state in ("starting", *END_STATES):
            states_of[event.name].append(f"{event.state}#{event.incarnation}")
    for name, states in sorted(states_of.items()):
        yield f"root: {name} {' '.join(states)}"


def _mail(run: ScenarioRun) -> Iterator[str]:
    """Yield the messages from one sender to one recipient, in order.

    Idle notices are left out: whether the last one is stored before the session ends depends on timing.
    """
    sent: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for passage in run.mail:
        if (envelope := passage.envelope) is not None and envelope.kind not in NEVER_WAKES:
            steps = sent[envelope.sender.name, passage.mailbox]
            steps[f"{passage.kind} {envelope.id}"] = f"{passage.kind} {envelope.kind}"
    for (sender, recipient), steps in sorted(sent.items()):
        yield f"mail: {sender} -> {recipient}: {', '.join(steps.values())}"


def _cost(run: ScenarioRun) -> str:
    """Return the cost of agents that were started once; a kill may leave the price of a pending call unknown."""
    restarted = {entry.agent for entry in run.ledger if entry.incarnation > 1}
    restarted |= {
        each.event.name for each in run.events if isinstance(each.event, AgentChanged) and each.event.incarnation > 1
    }
    return f"cost: {sum_costs(entry for entry in run.ledger if entry.agent not in restarted).cost}"


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
