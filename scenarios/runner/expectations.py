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
"""In which a command of an expectation has ended."""
SHOWN = 10
"""Lines of a command's output, or of a list, that a failure shows."""


class ScenarioCheck(Protocol):
    """Something that must be so once a story has been played."""

    @property
    def line(self) -> int:
        """Where it stands in the story's file."""
        ...

    def check(self, played: ScenarioRun) -> list[ScenarioFailure]:
        """What is not as it must be. Blocks."""
        ...


@attrs.frozen(kw_only=True)
class EventSeen:
    """An event happened, at least once or so many times."""

    line: int
    pattern: EventPattern
    times: int | None = None

    def check(self, played: ScenarioRun) -> list[ScenarioFailure]:
        """Count."""
        seen = [index for index, event in enumerate(played.events) if self.pattern.matches(event)]
        if (seen and self.times is None) or len(seen) == self.times:
            return []
        wanted = "at least once" if self.times is None else f"{self.times} times"
        shown = log_context(played.events, seen[-1]) if seen else _closest_events(self.pattern, played)
        reason = f"{self.pattern} happened {len(seen)} times; it must {wanted}"
        return [ScenarioFailure(reason=reason, line=self.line, around=shown)]


@attrs.frozen(kw_only=True)
class NeverSeen:
    """An event did not happen."""

    line: int
    pattern: EventPattern

    def check(self, played: ScenarioRun) -> list[ScenarioFailure]:
        """Look for the first."""
        index = next((index for index, event in enumerate(played.events) if self.pattern.matches(event)), None)
        if index is None:
            return []
        reason = f"{self.pattern} happened, and must never"
        return [ScenarioFailure(reason=reason, line=self.line, around=log_context(played.events, index))]


@attrs.frozen(kw_only=True)
class InOrder:
    """Events happened one after another, with any others between them."""

    line: int
    patterns: tuple[EventPattern, ...]

    def check(self, played: ScenarioRun) -> list[ScenarioFailure]:
        """Look for each behind the one before it."""
        last = -1
        for number, pattern in enumerate(self.patterns, 1):
            behind = range(last + 1, len(played.events))
            found = next((index for index in behind if pattern.matches(played.events[index])), None)
            if found is None:
                before = f" behind {self.patterns[number - 2]}" if number > 1 else ""
                shown = log_context(played.events, last) if number > 1 else _closest_events(pattern, played)
                return [ScenarioFailure(reason=f"{pattern} did not happen{before}", line=self.line, around=shown)]
            last = found
        return []


@attrs.frozen(kw_only=True)
class MailOnce:
    """Every message that was stored was delivered once, except so many that died.

    What was written to an agent after its last run had ended waits for a resume, and is not lost.
    """

    line: int
    dead: int = 0

    def check(self, played: ScenarioRun) -> list[ScenarioFailure]:
        """Hold what was stored against what is in the transcripts."""
        stored = {_key(each): each for each in played.mail if each.kind == "stored"}
        dead = {_key(each) for each in played.mail if each.kind == "dead"}
        delivered = Counter(_key(each) for each in played.mail if each.kind == "delivered")
        ends = {event.agent: event.at for event in played.events if event.kind == "finished"}
        missing = [each for key, each in stored.items() if not delivered[key] and key not in dead]
        lost = [each for each in missing if _must_arrive(each) and each.at <= ends.get(each.mailbox, math.inf)]
        reasons = [f"{_hop_text(each)} was never delivered" for each in lost]
        twice = [key for key, count in delivered.items() if count > 1]
        reasons += [f"message {id_} was delivered to {box} {delivered[box, id_]} times" for box, id_ in twice]
        if len(dead) != self.dead:
            reasons.append(f"{len(dead)} messages are dead; {self.dead} must be")
        return [ScenarioFailure(reason=reason, line=self.line) for reason in reasons]


@attrs.frozen(kw_only=True)
class FileIs:
    """A file of the workspace is there, or is not, and says something."""

    line: int
    path: str
    contains: str | None = None
    equals: str | None = None
    is_missing: bool = False

    def check(self, played: ScenarioRun) -> list[ScenarioFailure]:
        """Read it."""
        reason = self._problem(played.project / self.path)
        return [] if reason is None else [ScenarioFailure(reason=f"{self.path} {reason}", line=self.line)]

    def _problem(self, path: Path) -> str | None:
        if self.is_missing or not path.is_file():
            return None if self.is_missing and not path.exists() else f"is {'there' if self.is_missing else 'missing'}"
        text = path.read_text(errors="replace")
        if self.equals is not None and text != self.equals:
            return f"is {text!r}; it must be {self.equals!r}"
        if self.contains is not None and self.contains not in text:
            return f"does not contain {self.contains!r}: {text!r}"
        return None


@attrs.frozen(kw_only=True)
class CommandEnds:
    """A shell command, run in the workspace afterwards, ends as it must."""

    line: int
    run: str
    status: int = 0
    contains: str | None = None

    def check(self, played: ScenarioRun) -> list[ScenarioFailure]:
        """Run it."""
        try:
            done = subprocess.run(  # noqa: S603 - the story's own command
                ["/bin/sh", "-c", self.run],
                cwd=played.project,
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
            reason = f"{self.run!r} ended with {done.returncode}; it must with {self.status}"
            return [ScenarioFailure(reason=reason, line=self.line, around=shown)]
        if self.contains is not None and self.contains not in output:
            return [
                ScenarioFailure(reason=f"{self.run!r} did not print {self.contains!r}", line=self.line, around=shown)
            ]
        return []


@attrs.frozen(kw_only=True)
class StateIs:
    """An agent is in a state at the end, as the root last told."""

    line: int
    agent: str
    state: str

    def check(self, played: ScenarioRun) -> list[ScenarioFailure]:
        """Compare."""
        state = played.states.get(self.agent)
        if state == self.state:
            return []
        reason = f"{self.agent} {'never was' if state is None else f'is {state}'}; it must be {self.state}"
        return [ScenarioFailure(reason=reason, line=self.line, around=log_tail(played.events))]


@attrs.frozen(kw_only=True)
class CacheReadShare:
    """So much of the input of an agent, or of all, was read from the prompt cache."""

    line: int
    at_least: float
    agent: str | None = None

    def check(self, played: ScenarioRun) -> list[ScenarioFailure]:
        """Sum it up by the ledger."""
        share = sum_costs(line for line in played.ledger if self.agent in (None, line.agent)).cached_share
        if share >= self.at_least:
            return []
        whose = "all agents" if self.agent is None else self.agent
        reason = f"{share:.3f} of the input of {whose} was read from the cache; at least {self.at_least:g} must be"
        return [ScenarioFailure(reason=reason, line=self.line)]


@attrs.frozen(kw_only=True)
class CostWithin:
    """The session cost no more than this, and no less than that."""

    line: int
    at_most: Decimal | None = None
    at_least: Decimal = Decimal(0)

    def check(self, played: ScenarioRun) -> list[ScenarioFailure]:
        """Sum it up by the ledger."""
        cost = sum_costs(played.ledger).cost
        if cost >= self.at_least and (self.at_most is None or cost <= self.at_most):
            return []
        bounds = f"at least ${self.at_least}" if cost < self.at_least else f"at most ${self.at_most}"
        return [ScenarioFailure(reason=f"it cost ${cost}; it must {bounds}", line=self.line)]


@attrs.frozen(kw_only=True)
class ExitCodeIs:
    """The last command, `coterie run` or `coterie resume`, ended with this code."""

    line: int
    code: int

    def check(self, played: ScenarioRun) -> list[ScenarioFailure]:
        """Compare."""
        last = played.exit_codes[-1] if played.exit_codes else None
        if last == self.code:
            return []
        shown = tuple(f"  {line}" for line in played.errors.splitlines()[-SHOWN:])
        return [
            ScenarioFailure(reason=f"the exit code is {last}; it must be {self.code}", line=self.line, around=shown)
        ]


@attrs.frozen(kw_only=True)
class NothingLeft:
    """The doctor finds nothing: no process, no socket, no torn file. It holds for every story."""

    line: int = 0

    def check(self, played: ScenarioRun) -> list[ScenarioFailure]:
        """Repeat what the doctor said."""
        return [
            ScenarioFailure(reason=f"left behind: {finding}", line=self.line or None) for finding in played.findings
        ]


def _closest_events(pattern: EventPattern, played: ScenarioRun) -> tuple[str, ...]:
    """What did happen of that kind, or else the last events of all."""
    alike = [event for event in played.events if event.kind == pattern.kind]
    return log_tail(alike or played.events)


def _key(passage: MessageHop) -> tuple[str, str]:
    return passage.mailbox, str(passage.id)


def _must_arrive(passage: MessageHop) -> bool:
    return passage.envelope is None or passage.envelope.kind not in NEVER_WAKES


def _hop_text(passage: MessageHop) -> str:
    envelope = passage.envelope
    assert envelope is not None, "what was stored is known"
    return f"{envelope.kind} {envelope.id} from {envelope.sender.name} to {passage.mailbox}"
