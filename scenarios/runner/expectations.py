"""Expectations of a scenario, each checked against a finished run."""

import math
import subprocess
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Protocol

import attrs

from coterie.mailbox.policy import NEVER_WAKES
from coterie.orchestrator.cli.mail.message_history import MessageHop
from coterie.orchestrator.gateway.cost_totals import sum_costs
from coterie.scenarios.runner.event_pattern import EventPattern
from coterie.scenarios.runner.run_record import ScenarioFailure, ScenarioRun, log_context, log_tail

COMMAND_SECONDS = 60.0
"""Timeout of a command of an expectation."""
SHOWN = 10
"""Maximum number of output lines that a failure shows."""


class ScenarioCheck(Protocol):
    """Expectation that is checked after a scenario has run."""

    @property
    def line(self) -> int:
        """Line in the scenario file."""
        ...

    def check(self, run: ScenarioRun) -> list[ScenarioFailure]:
        """Return the failures of this expectation. Blocks."""
        ...


@attrs.frozen(kw_only=True)
class EventSeen:
    """Expectation that an event happened, at least once or exactly *times* times."""

    line: int
    pattern: EventPattern
    times: int | None = None

    def check(self, run: ScenarioRun) -> list[ScenarioFailure]:
        """Count the matching events."""
        seen = [index for index, event in enumerate(run.events) if self.pattern.matches(event)]
        if (seen and self.times is None) or len(seen) == self.times:
            return []
        expected = "at least once" if self.times is None else f"{self.times} times"
        shown = log_context(run.events, seen[-1]) if seen else _closest_events(self.pattern, run)
        reason = f"{self.pattern} happened {len(seen)} times; expected {expected}"
        return [ScenarioFailure(reason=reason, line=self.line, around=shown)]


@attrs.frozen(kw_only=True)
class NeverSeen:
    """Expectation that an event did not happen."""

    line: int
    pattern: EventPattern

    def check(self, run: ScenarioRun) -> list[ScenarioFailure]:
        """Find the first matching event."""
        index = next((index for index, event in enumerate(run.events) if self.pattern.matches(event)), None)
        if index is None:
            return []
        reason = f"{self.pattern} happened; expected never"
        return [ScenarioFailure(reason=reason, line=self.line, around=log_context(run.events, index))]


@attrs.frozen(kw_only=True)
class InOrder:
    """Expectation that events happened in this order, with any others between them."""

    line: int
    patterns: tuple[EventPattern, ...]

    def check(self, run: ScenarioRun) -> list[ScenarioFailure]:
        """Find each event after the previous one."""
        last = -1
        for number, pattern in enumerate(self.patterns, 1):
            behind = range(last + 1, len(run.events))
            found = next((index for index in behind if pattern.matches(run.events[index])), None)
            if found is None:
                before = f" after {self.patterns[number - 2]}" if number > 1 else ""
                shown = log_context(run.events, last) if number > 1 else _closest_events(pattern, run)
                return [ScenarioFailure(reason=f"{pattern} did not happen{before}", line=self.line, around=shown)]
            last = found
        return []


@attrs.frozen(kw_only=True)
class MailOnce:
    """Expectation that every stored message was delivered exactly once, except *dead* dead letters.

    A message to an agent whose last run has ended waits for a resume and is not lost.
    """

    line: int
    dead: int = 0

    def check(self, run: ScenarioRun) -> list[ScenarioFailure]:
        """Compare the stored messages with those in the transcripts."""
        stored = {_key(each): each for each in run.mail if each.kind == "stored"}
        dead = {_key(each) for each in run.mail if each.kind == "dead"}
        delivered = Counter(_key(each) for each in run.mail if each.kind == "delivered")
        ends = {event.agent: event.at for event in run.events if event.kind == "finished"}
        missing = [each for key, each in stored.items() if not delivered[key] and key not in dead]
        lost = [each for each in missing if _must_arrive(each) and each.at <= ends.get(each.mailbox, math.inf)]
        reasons = [f"{_hop_text(each)} was never delivered" for each in lost]
        twice = [key for key, count in delivered.items() if count > 1]
        reasons += [f"message {id_} was delivered to {box} {delivered[box, id_]} times" for box, id_ in twice]
        if len(dead) != self.dead:
            reasons.append(f"{len(dead)} messages are dead letters; expected {self.dead}")
        return [ScenarioFailure(reason=reason, line=self.line) for reason in reasons]


@attrs.frozen(kw_only=True)
class FileIs:
    """Expectation that a file of the workspace exists or not, and has this content."""

    line: int
    path: str
    contains: str | None = None
    equals: str | None = None
    is_missing: bool = False

    def check(self, run: ScenarioRun) -> list[ScenarioFailure]:
        """Read the file."""
        reason = self._problem(run.project / self.path)
        return [] if reason is None else [ScenarioFailure(reason=f"{self.path} {reason}", line=self.line)]

    def _problem(self, path: Path) -> str | None:
        if self.is_missing or not path.is_file():
            return None if self.is_missing and not path.exists() else f"{'exists' if self.is_missing else 'is missing'}"
        text = path.read_text(errors="replace")
        if self.equals is not None and text != self.equals:
            return f"is {text!r}; expected {self.equals!r}"
        if self.contains is not None and self.contains not in text:
            return f"does not contain {self.contains!r}: {text!r}"
        return None


@attrs.frozen(kw_only=True)
class CommandEnds:
    """Expectation that a shell command, run in the workspace afterwards, ends with this status and output."""

    line: int
    run: str
    status: int = 0
    contains: str | None = None

    def check(self, run: ScenarioRun) -> list[ScenarioFailure]:
        """Run the command."""
        try:
            done = subprocess.run(  # noqa: S603 - the scenario's own command
                ["/bin/sh", "-c", self.run],
                cwd=run.project,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=COMMAND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [
                ScenarioFailure(reason=f"{self.run!r} has not ended in {COMMAND_SECONDS:g} seconds", line=self.line)
            ]
        output = done.stdout.decode(errors="replace")
        shown = tuple(f"  {line}" for line in output.splitlines()[-SHOWN:])
        if done.returncode != self.status:
            reason = f"{self.run!r} exited with {done.returncode}; expected {self.status}"
            return [ScenarioFailure(reason=reason, line=self.line, around=shown)]
        if self.contains is not None and self.contains not in output:
            return [
                ScenarioFailure(reason=f"{self.run!r} did not print {self.contains!r}", line=self.line, around=shown)
            ]
        return []


@attrs.frozen(kw_only=True)
class StateIs:
    """Expectation that an agent is in this state at the end."""

    line: int
    agent: str
    state: str

    def check(self, run: ScenarioRun) -> list[ScenarioFailure]:
        """Compare with the last recorded state."""
        state = run.states.get(self.agent)
        if state == self.state:
            return []
        reason = f"{self.agent} {'never started' if state is None else f'is {state}'}; expected {self.state}"
        return [ScenarioFailure(reason=reason, line=self.line, around=log_tail(run.events))]


@attrs.frozen(kw_only=True)
class CacheReadShare:
    """Expectation on the share of input tokens read from the prompt cache, of one agent or of all."""

    line: int
    at_least: float
    agent: str | None = None

    def check(self, run: ScenarioRun) -> list[ScenarioFailure]:
        """Compute the share from the ledger."""
        share = sum_costs(entry for entry in run.ledger if self.agent in (None, entry.agent)).cached_share
        if share >= self.at_least:
            return []
        whose = "all agents" if self.agent is None else self.agent
        reason = f"{share:.3f} of the input of {whose} was read from the cache; expected at least {self.at_least:g}"
        return [ScenarioFailure(reason=reason, line=self.line)]


@attrs.frozen(kw_only=True)
class CostWithin:
    """Expectation on the total cost of the sessions."""

    line: int
    at_most: Decimal | None = None
    at_least: Decimal = Decimal(0)

    def check(self, run: ScenarioRun) -> list[ScenarioFailure]:
        """Sum up the ledger."""
        cost = sum_costs(run.ledger).cost
        if cost >= self.at_least and (self.at_most is None or cost <= self.at_most):
            return []
        bounds = f"at least ${self.at_least}" if cost < self.at_least else f"at most ${self.at_most}"
        return [ScenarioFailure(reason=f"the cost is ${cost}; expected {bounds}", line=self.line)]


@attrs.frozen(kw_only=True)
class ExitCodeIs:
    """Expectation on the exit code of the last command, `coterie run` or `coterie resume`."""

    line: int
    code: int

    def check(self, run: ScenarioRun) -> list[ScenarioFailure]:
        """Compare with the last exit code."""
        last = run.exit_codes[-1] if run.exit_codes else None
        if last == self.code:
            return []
        shown = tuple(f"  {line}" for line in run.errors.splitlines()[-SHOWN:])
        return [ScenarioFailure(reason=f"the exit code is {last}; expected {self.code}", line=self.line, around=shown)]


@attrs.frozen(kw_only=True)
class NothingLeft:
    """Expectation that the doctor finds nothing: no process, socket or torn file. Added to every scenario."""

    line: int = 0

    def check(self, run: ScenarioRun) -> list[ScenarioFailure]:
        """Return one failure for each finding of the doctor."""
        return [ScenarioFailure(reason=f"left behind: {finding}", line=self.line or None) for finding in run.findings]


def _closest_events(pattern: EventPattern, run: ScenarioRun) -> tuple[str, ...]:
    """Return the last events of the same kind, or the last events of all if there are none."""
    alike = [event for event in run.events if event.kind == pattern.kind]
    return log_tail(alike or run.events)


def _key(passage: MessageHop) -> tuple[str, str]:
    return passage.mailbox, str(passage.id)


def _must_arrive(passage: MessageHop) -> bool:
    return passage.envelope is None or passage.envelope.kind not in NEVER_WAKES


def _hop_text(passage: MessageHop) -> str:
    envelope = passage.envelope
    assert envelope is not None, "a stored message has an envelope"
    return f"{envelope.kind} {envelope.id} from {envelope.sender.name} to {passage.mailbox}"
