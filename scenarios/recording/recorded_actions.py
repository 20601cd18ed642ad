"""Steps, user actions and faults of a recorded session."""

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
"""How the root begins to tell why it starts an agent another time by itself."""
CANCELLED = "cancelled"
"""How a run ends that the user has interrupted."""
_IDENTIFYING: Mapping[str, tuple[str, ...]] = {
    "started": ("incarnation",),
    "replied": ("turn",),
    "tool_started": ("name",),
    "tool_ended": ("name",),
    "finished": (),
}
"""Events at which something can be done, and the members by which one is told from others."""


@attrs.frozen(kw_only=True)
class RecordedRun:
    """One `coterie run` or `coterie resume`."""

    began: float
    ended: float | None
    """None if nobody has seen it end: its root was killed, or the machine stopped."""


@attrs.define(eq=False, kw_only=True)
class RecordedActions:
    """Reads what was done to a session from its events and its mail."""

    events: Sequence[SessionEvent]
    letters: Mapping[str, Envelope]
    voices: Mapping[str, AgentTurns]
    places: Placeholders
    doubts: list[str] = attrs.field(factory=list)

    def runs(self) -> list[RecordedRun]:
        """Each time that the session was begun, or taken up again."""
        told = [(each.at, each.event) for each in self.events if isinstance(each.event, AgentChanged)]
        lead = [(at, event) for at, event in told if event.name == MAIN]
        starts = [at for at, event in lead if event.state == "starting" and not event.what.startswith(AGAIN)]
        runs = []
        for began, until in zip(starts, [*starts[1:], float("inf")], strict=True):
            ends = [at for at, event in lead if began <= at < until and event.state in END_STATES]
            runs.append(RecordedRun(began=began, ended=ends[-1] if ends else None))
        return runs

    def steps(self) -> list[Any]:
        """The commands of the user, one after another."""
        runs, steps = self.runs(), list[Any](["run"])
        for run, following in pairwise(runs):
            steps += [self._mail(letter) for letter in self._between(run.ended or run.began, following.began)]
            words = self._event_members(following.began)
            steps.append({"resume": words} if words else "resume")
        return steps

    def user_actions(self) -> list[dict[str, Any]]:
        """What the user did while the team worked."""
        return [*self._verdicts(), *self._letters(), *self._stops()]

    def faults(self) -> list[dict[str, Any]]:
        """Processes that were killed, and came again."""
        return [*self._crashes(), *self._root_crashes()]

    def _event_members(self, began: float) -> str:
        """What the user said with a resume that began then."""
        runs = [run.began for run in self.runs()]
        until = next((at for at in runs if at > began), float("inf"))
        bodies = {letter.body for letter in self._by_user()}
        lead = self.voices.get(MAIN)
        said = [text for at, text in (lead.words if lead else ()) if began <= at < until and text not in bodies]
        return self.places.mask_plain(said[0]) if said else ""

    def _by_user(self) -> list[Envelope]:
        letters = (letter for letter in self.letters.values() if letter.sender.kind == "human")
        return sorted(letters, key=lambda letter: letter.created)

    def _between(self, one: float, other: float) -> Iterator[Envelope]:
        for letter in self._by_user():
            if one <= letter.created < other and not self._is_at_work(letter.created):
                yield letter

    def _is_at_work(self, at: float) -> bool:
        runs = self.runs()
        ends = [run.ended if run.ended is not None else self._last_sign(number) for number, run in enumerate(runs)]
        return any(run.began <= at <= end for run, end in zip(runs, ends, strict=True))

    def _last_sign(self, number: int) -> float:
        """When anything was last heard in a run."""
        runs = self.runs()
        until = runs[number + 1].began if number + 1 < len(runs) else float("inf")
        return max(each.at for each in self.events if each.at < until)

    def _mail(self, letter: Envelope) -> dict[str, Any]:
        return {"mail": {"to": letter.recipient.name, "text": self.places.mask_plain(letter.body)}}

    def _letters(self) -> Iterator[dict[str, Any]]:
        for letter in self._by_user():
            to = letter.recipient.name
            before = [i for i, each in enumerate(self.events) if each.agent == to and each.at <= letter.created]
            if not self._is_at_work(letter.created) or letter.kind != "message":
                continue
            moment = self._moment([i for i in before if self.events[i].kind in ("replied", "started")])
            if moment is None:
                self.doubts.append(f"the user's message to {to} came before anything was heard of it, and is left out")
                continue
            if self._is_busy(to, letter.created):
                self.doubts.append(f"the user's message to {to} may come a turn later than it did: it takes a command")
            yield {**moment, "do": "mail", "to": to, "text": self.places.mask_plain(letter.body)}

    def _stops(self) -> Iterator[dict[str, Any]]:
        """Runs of the lead that were interrupted; its agents are stopped with it."""
        for number, observed in enumerate(self.events):
            event = observed.event
            if observed.agent == MAIN and isinstance(event, Finished) and event.reason == CANCELLED:
                own = [i for i in range(number) if self.events[i].agent == MAIN]
                if (moment := self._moment(own)) is not None:
                    yield {**moment, "do": "stop"}

    def _is_busy(self, name: str, at: float) -> bool:
        """Whether the agent *name* did not wait for mail at that time."""
        replies = self.voices[name].replies if name in self.voices else []
        said = next((each for each in reversed(replies) if each.at <= at), None)
        return said is None or bool(said.calls)

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
                act["feedback"] = self.places.mask_plain(verdict.feedback)
            yield act

    def _crashes(self) -> Iterator[dict[str, Any]]:
        """Agents that the root started again by itself."""
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
            if (moment := self._moment(own)) is not None:
                yield {**moment, "do": "kill", "target": event.name}

    def _root_crashes(self) -> Iterator[dict[str, Any]]:
        for number, run in enumerate(self.runs()):
            if run.ended is None:
                last = self._last_sign(number)
                if (moment := self._moment([i for i, each in enumerate(self.events) if each.at <= last])) is not None:
                    yield {**moment, "do": "kill", "target": "root"}

    def _moment(self, indexes: Sequence[int]) -> dict[str, Any] | None:
        """The last of the events at *indexes* by which a moment can be told, and which one of its like it is."""
        index = next((i for i in reversed(indexes) if self.events[i].kind in _IDENTIFYING), None)
        if index is None:
            return None
        observed = self.events[index]
        members = {"agent": observed.agent, **{key: observed.members[key] for key in _IDENTIFYING[observed.kind]}}
        pattern = EventPattern(kind=observed.kind, members=members)
        nth = sum(pattern.matches(each) for each in self.events[: index + 1])
        return {"when": {"kind": observed.kind, **members}, **({"nth": nth} if nth > 1 else {})}
