"""Derives the steps (commands of the user), user actions and faults of a scenario from a recorded session."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import attrs

from coterie.agents.events.agent_events import Finished
from coterie.agents.events.event_reader import SessionEvent
from coterie.agents.events.root_events import AgentChanged, ApprovalAsked, ApprovalDecided
from coterie.mailbox.envelope import Envelope
from coterie.orchestrator.session.overview import END_STATES
from coterie.scenarios.recording.placeholders import Placeholders
from coterie.scenarios.recording.transcript_turns import AgentTurns
from coterie.scenarios.runner.event_pattern import EventPattern
from coterie.session_directory import MAIN

AGAIN = "again"
"""First word of the reason in an `agent_changed` event by which the root (supervisor process) restarts an agent."""
_IDENTIFYING: Mapping[str, tuple[str, ...]] = {
    "started": ("incarnation",),
    "replied": ("turn",),
    "tool_started": ("name",),
    "tool_ended": ("name",),
    "finished": (),
}
"""Event kinds that can trigger a recorded action, each with the fields that a trigger compares besides the agent."""


@attrs.frozen(kw_only=True)
class RecordedRun:
    """Period in which the recorded session ran: from one `coterie run` or `coterie resume` to the end of the lead."""

    began: float
    ended: float | None
    """Time when the lead (first agent) ended; None if the root (supervisor process) was killed first."""
    last: float
    """Time of the last event of this run, before the next run began."""


@attrs.define(eq=False, kw_only=True)
class RecordedActions:
    """Derives the lists `steps`, `human` (user actions) and `faults` of a scenario from a session's events and mail."""

    events: Sequence[SessionEvent]
    messages: Mapping[str, Envelope]
    agents: Mapping[str, AgentTurns]
    placeholders: Placeholders
    remarks: list[str] = attrs.field(factory=list)

    def runs(self) -> list[RecordedRun]:
        """Return the runs of the session by time: the first start, and each resume by the user."""
        changes = [(each.at, each.event) for each in self.events if isinstance(each.event, AgentChanged)]
        lead = [(at, event) for at, event in changes if event.name == MAIN]
        starts = [at for at, event in lead if event.state == "starting" and not event.what.startswith(AGAIN)]
        runs = []
        for began, until in zip(starts, [*starts[1:], float("inf")], strict=True):
            ends = [at for at, event in lead if began <= at < until and event.state in END_STATES]
            last = max(each.at for each in self.events if each.at < until)
            runs.append(RecordedRun(began=began, ended=ends[-1] if ends else None, last=last))
        return runs

    def steps(self) -> list[Any]:
        """Return the `steps` list: `run`, a `resume` for each later run, and mail that the user sent between runs."""
        runs, steps = self.runs(), list[Any](["run"])
        for run, following in pairwise(runs):
            for message in self._by_user():
                is_between = (run.ended or run.began) <= message.created < following.began
                if is_between and not self._is_running(message.created):
                    text = self.placeholders.mask_plain(message.body)
                    steps.append({"mail": {"to": message.recipient.name, "text": text}})
            text = self._resume_text(following.began)
            steps.append({"resume": text} if text else "resume")
        return steps

    def user_actions(self) -> list[dict[str, Any]]:
        """Return the `human` list: what the user approved, rejected, mailed and stopped while agents were running."""
        return [*self._verdicts(), *self._messages(), *self._stops()]

    def faults(self) -> list[dict[str, Any]]:
        """Return the `faults` list: a kill for each restart of an agent after a crash, and for each killed root."""
        return [*self._crashes(), *self._root_crashes()]

    def _resume_text(self, began: float) -> str:
        """Return the message that the user passed to `coterie resume` at the time *began*; empty if there was none."""
        runs = [run.began for run in self.runs()]
        until = next((at for at in runs if at > began), float("inf"))
        bodies = {message.body for message in self._by_user()}
        lead = self.agents.get(MAIN)
        texts = [text for at, text in (lead.user_texts if lead else ()) if began <= at < until and text not in bodies]
        return self.placeholders.mask_plain(texts[0]) if texts else ""

    def _by_user(self) -> list[Envelope]:
        messages = (message for message in self.messages.values() if message.sender.kind == "human")
        return sorted(messages, key=lambda message: message.created)

    def _is_running(self, at: float) -> bool:
        return any(run.began <= at <= (run.last if run.ended is None else run.ended) for run in self.runs())

    def _messages(self) -> Iterator[dict[str, Any]]:
        for message in self._by_user():
            to = message.recipient.name
            before = [i for i, each in enumerate(self.events) if each.agent == to and each.at <= message.created]
            if not self._is_running(message.created) or message.kind != "message":
                continue
            trigger = self._trigger([i for i in before if self.events[i].kind in ("replied", "started")])
            if trigger is None:
                self.remarks.append(f"the user's message to {to} came before the first event of {to} and is omitted")
                continue
            if self._is_busy(to, message.created):
                self.remarks.append(
                    f"the user's message to {to} may arrive a turn later in a run, because a command sends it"
                )
            yield {**trigger, "do": "mail", "to": to, "text": self.placeholders.mask_plain(message.body)}

    def _stops(self) -> Iterator[dict[str, Any]]:
        """Yield a `stop` action, which stops the session, for each time the user interrupted the lead (first agent)."""
        for number, observed in enumerate(self.events):
            event = observed.event
            if observed.agent == MAIN and isinstance(event, Finished) and event.reason == "cancelled":
                own = [i for i in range(number) if self.events[i].agent == MAIN]
                if (trigger := self._trigger(own)) is not None:
                    yield {**trigger, "do": "stop"}

    def _is_busy(self, name: str, at: float) -> bool:
        """True if the agent *name* was working at the time *at*: its last reply has tool calls, or it has none yet."""
        replies = self.agents[name].replies if name in self.agents else []
        reply = next((each for each in reversed(replies) if each.at <= at), None)
        return reply is None or bool(reply.calls)

    def _verdicts(self) -> Iterator[dict[str, Any]]:
        asked = [each.event for each in self.events if isinstance(each.event, ApprovalAsked)]
        decided = {each.event.id: each.event for each in self.events if isinstance(each.event, ApprovalDecided)}
        seen: dict[tuple[str, str], int] = {}
        for claim in {event.id: event for event in asked}.values():
            key = (claim.name, claim.what)
            seen[key] = seen.get(key, 0) + 1
            verdict = decided.get(claim.id)
            if verdict is None or verdict.by != "human" or verdict.verdict == "withdrawn":
                continue
            act: dict[str, Any] = {"when": {"kind": "approval_asked", "name": claim.name, "what": claim.what}}
            if seen[key] > 1:
                act["nth"] = seen[key]
            act["do"] = "approve" if verdict.verdict == "approved" else "reject"
            if verdict.feedback:
                act["feedback"] = self.placeholders.mask_plain(verdict.feedback)
            yield act

    def _crashes(self) -> Iterator[dict[str, Any]]:
        """Yield a `kill` fault for each agent process that was killed or failed, and was restarted by the root."""
        for number, observed in enumerate(self.events):
            event = observed.event
            if not isinstance(event, AgentChanged) or event.state not in ("killed", "failed"):
                continue
            later = (each.event for each in self.events[number + 1 :])
            if not any(
                isinstance(each, AgentChanged)
                and (each.name, each.incarnation, each.state) == (event.name, event.incarnation + 1, "starting")
                and each.what.startswith(AGAIN)
                for each in later
            ):
                continue
            own = [i for i in range(number) if self.events[i].agent == event.name]
            if (trigger := self._trigger(own)) is not None:
                yield {**trigger, "do": "kill", "target": event.name}

    def _root_crashes(self) -> Iterator[dict[str, Any]]:
        for run in self.runs():
            before = [i for i, each in enumerate(self.events) if each.at <= run.last]
            if run.ended is None and (trigger := self._trigger(before)) is not None:
                yield {**trigger, "do": "kill", "target": "root"}

    def _trigger(self, indexes: Sequence[int]) -> dict[str, Any] | None:
        """Return a trigger (`when`, `nth`) for the last event at *indexes* that can be a trigger; None if none can."""
        index = next((i for i in reversed(indexes) if self.events[i].kind in _IDENTIFYING), None)
        if index is None:
            return None
        observed = self.events[index]
        members = {"agent": observed.agent, **{key: observed.members[key] for key in _IDENTIFYING[observed.kind]}}
        pattern = EventPattern(kind=observed.kind, members=members)
        nth = sum(pattern.matches(each) for each in self.events[: index + 1])
        return {"when": {"kind": observed.kind, **members}, **({"nth": nth} if nth > 1 else {})}
