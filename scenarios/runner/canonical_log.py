"""Canonical log of a scenario run, identical for every run with the same seed.

One sequence for each agent, as it recorded it; how each of its starts went; who wrote to whom; what it all cost. What
depends on when something happened, as retries and summaries of progress do, is left out.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
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
"""Kinds whose number or order depends on time; what tools did stands in messages."""
_LEFT_OUT = frozenset({"v", "at", "session", "agent", "kind", "tools", "usage", "seconds", "cost_usd", "result"})
"""Members that say when, how much, or again."""
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
"""Who of several pays for what all of them read from the cache depends on time; what they pay together does not."""


def canonical_log(played: ScenarioRun, root: Path) -> tuple[str, ...]:
    """The lines of *played*, which was played below the directory *root*."""
    return (
        *_agents(played, root),
        *_starts(played.events),
        *_mail(played),
        _cost(played),
    )


def first_difference(one: Iterable[str], other: Iterable[str]) -> str | None:
    """Where two logs part, in words; None if they are the same."""
    before, after = list(one), list(other)
    for number, (left, right) in enumerate(zip(before, after, strict=False), 1):
        if left != right:
            return f"line {number} was {left!r}, and now is {right!r}"
    if len(before) != len(after):
        longer = max(before, after, key=len)
        return f"one log goes on with {longer[min(len(before), len(after))]!r}"
    return None


def _agents(played: ScenarioRun, root: Path) -> Iterator[str]:
    by_agent: defaultdict[str, list[SessionEvent]] = defaultdict(list)
    names = _names(played)
    for observed in played.events:
        if observed.kind not in _TIMED and not _is_stop_report(observed):
            by_agent[observed.agent].append(observed)
    for agent, observed_ones in sorted(by_agent.items()):
        normal = _Normalizer(root)
        for observed in observed_ones:
            for words in _event_text(observed, names):
                yield f"{agent}: {normal.of(words)}"


def _is_stop_report(observed: SessionEvent) -> bool:
    """Whether an agent says that it was stopped: one that is killed with its root comes to that, or does not."""
    return isinstance(event := observed.event, Finished) and event.reason == "cancelled"


def _names(played: ScenarioRun) -> dict[str, str]:
    """What each message is called by who reads it: by its sender, what it is, and the how-manieth it was."""
    names: dict[str, str] = {}
    sent: Counter[tuple[str, str, str]] = Counter()
    for passage in played.mail:
        if passage.kind == "stored" and (envelope := passage.envelope) is not None and envelope.id not in names:
            pair = envelope.sender.name, passage.mailbox, envelope.kind
            sent[pair] += 1
            names[envelope.id] = f"{envelope.kind} {sent[pair]} of {envelope.sender.name}"
    return names


def _event_text(observed: SessionEvent, names: Mapping[str, str]) -> Iterator[str]:
    if isinstance(event := observed.event, MessageRecorded):
        for block in event.content:
            yield f"{event.role} {_block(block)}"
        return
    if isinstance(event, MailDelivered):
        # Those that came for one turn came in any order.
        yield f"delivered {', '.join(sorted(names.get(id_, id_) for id_ in event.ids))}"
        return
    members = {key: value for key, value in observed.members.items() if key not in _LEFT_OUT}
    yield f"{observed.kind} {_json(members)}"


def _block(block: Mapping[str, Any]) -> str:
    kept = {key: value for key, value in block.items() if key not in ("type", "signature", "cache_control")}
    return f"{block.get('type')} {_json(kept)}"


def _starts(events: Iterable[SessionEvent]) -> Iterator[str]:
    """How each start of each agent went, as the root told it."""
    told: defaultdict[str, list[str]] = defaultdict(list)
    for observed in events:
        event = observed.event
        if isinstance(event, AgentChanged) and event.state in ("starting", *END_STATES):
            told[event.name].append(f"{event.state}#{event.incarnation}")
    for name, states in sorted(told.items()):
        yield f"root: {name} {' '.join(states)}"


def _mail(played: ScenarioRun) -> Iterator[str]:
    """Who wrote to whom: the messages of one sender to one recipient, in their order.

    Whether the last notice that somebody is idle was stored before all ended is a matter of time.
    """
    sent: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for passage in played.mail:
        if (envelope := passage.envelope) is not None and envelope.kind not in NEVER_WAKES:
            steps = sent[envelope.sender.name, passage.mailbox]
            steps[f"{passage.kind} {envelope.id}"] = f"{passage.kind} {envelope.kind}"
    for (sender, recipient), steps in sorted(sent.items()):
        yield f"mail: {sender} -> {recipient}: {', '.join(steps.values())}"


def _cost(played: ScenarioRun) -> str:
    """What those cost who were started once: of a call that a kill met, the price is known or not."""
    again = {line.agent for line in played.ledger if line.incarnation > 1}
    again |= {
        each.event.name for each in played.events if isinstance(each.event, AgentChanged) and each.event.incarnation > 1
    }
    return f"cost: {sum_costs(line for line in played.ledger if line.agent not in again).cost}"


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


@attrs.define(eq=False)
class _Normalizer:
    """Texts of one agent, with whatever differs from play to play named by the order in which it is first seen."""

    _root: Path
    _ids: dict[str, str] = attrs.field(factory=dict)

    def of(self, text: str) -> str:
        """*text* as it would be in any play."""
        for path, name in ((project_slug(self._root / "project"), "<slug>"), (str(self._root), "<stage>")):
            text = text.replace(path, name)
        text = _IDS.sub(lambda found: self._ids.setdefault(found[0], f"<id {len(self._ids) + 1}>"), text)
        text = _PROCESSES.sub(r"\1 <number>", _TIMES.sub("<time>", text))
        return _DOLLARS.sub(r"\1<amount>", text)
