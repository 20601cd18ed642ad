"""Expectations of a scenario (scripted test of a team of agents), each checked against the record of a finished run."""

import math
import subprocess
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

import attrs

from coterie.mailbox.policy import NEVER_WAKES
from coterie.orchestrator.cli.mail.message_history import MessageHop
from coterie.orchestrator.gateway.cost_totals import sum_costs
from coterie.scenarios.runner.event_pattern import EventPattern
from coterie.scenarios.runner.run_record import ScenarioFailure, ScenarioRun, log_context, log_tail

COMMAND_SECONDS = 60.0
"""Maximum time in seconds for the shell command of an expectation `command`; then it is killed."""
SHOWN = 10
"""Maximum number of lines of command output, counted from the end, that a failure shows."""


Problem = tuple[str, tuple[str, ...]]
"""A difference between expectation and run: a description, and log or output lines that may explain it."""


@attrs.frozen(kw_only=True)
class ScenarioCheck(ABC):
    """Base class of the expectations of a scenario, which are checked against the record of a run after its end."""

    line: int = 0
    """Line of this expectation in the scenario file; 0 if it is checked without being in the file."""

    def check(self, run: ScenarioRun) -> list[ScenarioFailure]:
        """Return a failure for each violation of this expectation by *run*; empty if the expectation is met. Blocks."""
        problems = self._problems(run)
        return [ScenarioFailure(reason=reason, line=self.line or None, around=around) for reason, around in problems]

    @abstractmethod
    def _problems(self, run: ScenarioRun) -> Iterator[Problem]: ...


@attrs.frozen(kw_only=True)
class EventSeen(ScenarioCheck):
    """Expectation `event`: an event that matches `pattern` happened at least once, or exactly `times` times."""

    pattern: EventPattern
    times: int | None = None

    def _problems(self, run: ScenarioRun) -> Iterator[Problem]:
        seen = [index for index, event in enumerate(run.events) if self.pattern.matches(event)]
        if len(seen) != self.times and (self.times is not None or not seen):
            expected = "at least once" if self.times is None else f"{self.times} times"
            shown = log_context(run.events, seen[-1]) if seen else _closest_events(self.pattern, run)
            yield f"{self.pattern} happened {len(seen)} times; expected {expected}", shown


@attrs.frozen(kw_only=True)
class NeverSeen(ScenarioCheck):
    """Expectation `never`: no event that matches `pattern` happened."""

    pattern: EventPattern

    def _problems(self, run: ScenarioRun) -> Iterator[Problem]:
        index = next((index for index, event in enumerate(run.events) if self.pattern.matches(event)), None)
        if index is not None:
            yield f"{self.pattern} happened; expected never", log_context(run.events, index)


@attrs.frozen(kw_only=True)
class InOrder(ScenarioCheck):
    """Expectation `order`: events that match `patterns` happened in this order; other events may be between them."""

    patterns: tuple[EventPattern, ...]

    def _problems(self, run: ScenarioRun) -> Iterator[Problem]:
        last = -1
        for number, pattern in enumerate(self.patterns, 1):
            behind = range(last + 1, len(run.events))
            found = next((index for index in behind if pattern.matches(run.events[index])), None)
            if found is None:
                before = f" after {self.patterns[number - 2]}" if number > 1 else ""
                shown = log_context(run.events, last) if number > 1 else _closest_events(pattern, run)
                yield f"{pattern} did not happen{before}; expected this order", shown
                return
            last = found


@attrs.frozen(kw_only=True)
class MailOnce(ScenarioCheck):
    """Expectation `mail`: every message was delivered once, except exactly `dead` dead letters (undeliverable).

    A lost idle notice is no failure. A message stored after its recipient finished waits for a resume; it is not lost.
    """

    dead: int = 0

    def _problems(self, run: ScenarioRun) -> Iterator[Problem]:
        stored = {_key(each): each for each in run.mail if each.kind == "stored"}
        dead = {_key(each) for each in run.mail if each.kind == "dead"}
        delivered = Counter(_key(each) for each in run.mail if each.kind == "delivered")
        ends = {event.agent: event.at for event in run.events if event.kind == "finished"}
        missing = [each for key, each in stored.items() if not delivered[key] and key not in dead]
        for each in missing:
            envelope = each.envelope
            assert envelope is not None, "a stored message has an envelope"
            if envelope.kind not in NEVER_WAKES and each.at <= ends.get(each.mailbox, math.inf):
                name = f"{envelope.kind} {envelope.id} from {envelope.sender.name} to {each.mailbox}"
                yield f"{name} was never delivered", ()
        twice = [key for key, count in delivered.items() if count > 1]
        for box, id_ in twice:
            yield f"message {id_} was delivered to {box} {delivered[box, id_]} times", ()
        if len(dead) != self.dead:
            yield f"{len(dead)} messages are dead letters (undeliverable); expected {self.dead}", ()


@attrs.frozen(kw_only=True)
class FileIs(ScenarioCheck):
    """Expectation `file`: a workspace file has the text `equals`, has the part `contains`, exists, or is missing."""

    path: str
    contains: str | None = None
    equals: str | None = None
    is_missing: bool = False

    def _problems(self, run: ScenarioRun) -> Iterator[Problem]:
        path = run.project / self.path
        if self.is_missing:
            if path.exists():
                yield f"the file {self.path} exists; expected none", ()
            return
        if not path.is_file():
            yield f"the file {self.path} is missing; expected it to exist", ()
            return
        text = path.read_text(errors="replace")
        if self.equals is not None and text != self.equals:
            yield f"the file {self.path} is {text!r}; expected {self.equals!r}", ()
        elif self.contains is not None and self.contains not in text:
            yield f"the file {self.path} does not contain {self.contains!r}; its text is {text!r}", ()


@attrs.frozen(kw_only=True)
class CommandEnds(ScenarioCheck):
    """Expectation `command`: a shell command in the workspace after the run exits with `status`, prints `contains`."""

    run: str
    status: int = 0
    contains: str | None = None

    def _problems(self, run: ScenarioRun) -> Iterator[Problem]:
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
            yield f"the command {self.run!r} was killed because it ran for {COMMAND_SECONDS:g} seconds", ()
            return
        output = done.stdout.decode(errors="replace")
        shown = tuple(f"  {line}" for line in output.splitlines()[-SHOWN:])
        if done.returncode != self.status:
            yield f"the command {self.run!r} exited with {done.returncode}; expected {self.status}", shown
        elif self.contains is not None and self.contains not in output:
            yield f"the command {self.run!r} did not print {self.contains!r}", shown


@attrs.frozen(kw_only=True)
class StateIs(ScenarioCheck):
    """Expectation `state`: the last recorded state of `agent` is `state`, such as `done`."""

    agent: str
    state: str

    def _problems(self, run: ScenarioRun) -> Iterator[Problem]:
        state = run.states.get(self.agent)
        if state != self.state:
            found = "never started" if state is None else f"is {state} at the end"
            yield f"the agent {self.agent} {found}; expected the state {self.state}", log_tail(run.events)


@attrs.frozen(kw_only=True)
class CacheReadShare(ScenarioCheck):
    """Expectation `cache_read_share`: minimum share of input tokens read from the prompt cache, by one agent or all."""

    at_least: float
    agent: str | None = None

    def _problems(self, run: ScenarioRun) -> Iterator[Problem]:
        share = sum_costs(entry for entry in run.ledger if self.agent in (None, entry.agent)).cached_share
        if share < self.at_least:
            read = f"{share:.3f} of the input of {self.agent or 'all agents'} was read from the prompt cache"
            yield f"{read}; expected at least {self.at_least:g}", ()


@attrs.frozen(kw_only=True)
class CostWithin(ScenarioCheck):
    """Expectation `dollars`, also the cost limit of a scenario: bounds of the total cost of all sessions of the run."""

    at_most: Decimal | None = None
    at_least: Decimal = Decimal(0)

    def _problems(self, run: ScenarioRun) -> Iterator[Problem]:
        cost = sum_costs(run.ledger).cost
        if cost < self.at_least:
            yield f"the cost is ${cost}; expected at least ${self.at_least}", ()
        elif self.at_most is not None and cost > self.at_most:
            yield f"the cost is ${cost}; expected at most ${self.at_most}", ()


@attrs.frozen(kw_only=True)
class ExitCodeIs(ScenarioCheck):
    """Expectation `exit_code`: the command of the scenario's last step, such as `coterie run`, exited with `code`."""

    code: int

    def _problems(self, run: ScenarioRun) -> Iterator[Problem]:
        last = run.exit_codes[-1] if run.exit_codes else None
        if last != self.code:
            shown = tuple(f"  {line}" for line in run.errors.splitlines()[-SHOWN:])
            yield f"the exit code of the last command is {last}; expected {self.code}", shown


@attrs.frozen(kw_only=True)
class NothingLeft(ScenarioCheck):
    """Expectation `strays`, part of every scenario: no process, socket or torn file is left after the run."""

    def _problems(self, run: ScenarioRun) -> Iterator[Problem]:
        yield from ((f"left behind after the run: {finding}", ()) for finding in run.findings)


def _closest_events(pattern: EventPattern, run: ScenarioRun) -> tuple[str, ...]:
    """Return log lines of the last events of the pattern's kind; if there are none, of the last events of any kind."""
    alike = [event for event in run.events if event.kind == pattern.kind]
    return log_tail(alike or run.events)


def _key(passage: MessageHop) -> tuple[str, str]:
    return passage.mailbox, str(passage.id)
