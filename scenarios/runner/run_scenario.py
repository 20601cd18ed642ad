"""Runs a scenario once: its commands in order, and user actions and faults when their trigger events occur."""

import signal
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial

import attrs
import msgspec
import trio

from coterie.agents.events.event_reader import SessionEvent
from coterie.agents.events.root_events import AgentChanged
from coterie.mailbox.fault_injection import add_fault_rule, read_injected_faults
from coterie.orchestrator.cli.output import ExitCode
from coterie.orchestrator.gateway.ledger import LEDGER, LedgerEntry, read_ledger
from coterie.orchestrator.processes.zygote import TITLE
from coterie.orchestrator.session.overview import END_STATES
from coterie.orchestrator.session.root_lock import find_root
from coterie.scenarios.runner.environment import SEED_VARIABLE, ScenarioEnvironment
from coterie.scenarios.runner.run_record import ScenarioFailure, ScenarioRun, log_tail, sweep_mail, without_text_events
from coterie.scenarios.runner.scenario import (
    EVERYTHING,
    LEAD,
    ROOT,
    ZYGOTE,
    IoFault,
    ProcessFault,
    ProcessFaultName,
    Scenario,
    ScenarioAction,
    ScenarioStep,
    UserAction,
)
from coterie.scenarios.runner.scenario_processes import ScenarioProcess, find_processes, kill_all, wait_for_exit
from coterie.scenarios.runner.user_commands import (
    SessionWatch,
    qualify_agent,
    qualify_event,
    qualify_hop,
    run_user_action,
    second_session_command,
    step_command,
)
from coterie.session_directory import MAIN, SessionDirectory

_SIGNALS: Mapping[ProcessFaultName, signal.Signals] = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "continue": signal.SIGCONT,
}

TITLE_LENGTH = 15
"""Maximum length of a process title; the kernel cuts off longer titles."""


def apply_fault(
    fault: ProcessFault, environment: ScenarioEnvironment, session: SessionDirectory, events: Iterable[SessionEvent]
) -> list[ScenarioProcess]:
    """Signal the target processes of *fault* and return them, or advance the clock and return an empty list. Blocks."""
    if fault.action == "jump":
        environment.clock.advance(fault.seconds)
        return []
    victims = _find_victims(fault.target, environment, session, events)
    return [process for process in victims if process.send_signal(_SIGNALS[fault.action])]


def _find_victims(
    target: str, environment: ScenarioEnvironment, session: SessionDirectory, events: Iterable[SessionEvent]
) -> list[ScenarioProcess]:
    processes = find_processes(environment.home)
    root = find_root(session)
    if target == EVERYTHING:
        # Kill the root first; otherwise it starts to restart agents.
        return sorted(processes, key=lambda process: root is None or process.pid != root.pid)
    if target == ROOT:
        return [process for process in processes if root is not None and process.pid == root.pid]
    if target == ZYGOTE:
        return [process for process in processes if process.name == TITLE[:TITLE_LENGTH]]
    agent = MAIN if target == LEAD else target
    pid: int | None = None
    for event in (observed.event for observed in events):
        if isinstance(event, AgentChanged) and event.name == agent:
            # Known as far as the root has recorded it.
            pid = None if event.state in END_STATES else event.pid or pid
    if pid is None:
        # The process may run before the root records its pid. Then find it by its title, if that is unambiguous.
        titled = [process for process in processes if process.name == f"coterie {agent}"[:TITLE_LENGTH]]
        return titled if len(titled) == 1 else []
    return [process for process in processes if process.pid == pid]


CLEAN_UP = 30.0
"""Maximum time in seconds for killing all processes at the end of a run, which also happens after a cancellation."""
ERRORS_SHOWN = 4000
ENDED = (ExitCode.DONE, ExitCode.USAGE, ExitCode.BUDGET_SPENT, ExitCode.APPROVAL_REFUSED)
"""Exit codes of `coterie run` after which the session is not resumed, because it ended by itself, not by a fault."""


async def run_scenario(
    scenario: Scenario, environment: ScenarioEnvironment, *, resumes: int = 0
) -> tuple[ScenarioRun, list[ScenarioFailure]]:
    """Run *scenario* in *environment* until it ends or reaches its time limit; return the record and the failures.

    Failures are a timeout, and user actions and faults that were not carried out; expectations are not checked. After
    the last step, an interrupted session is resumed at most *resumes* times. At the end, processes left are killed.
    """
    execution = _ScenarioExecution(scenario, environment, resumes)
    try:
        with trio.move_on_after(scenario.limits.seconds) as limit:
            await execution.run()
        if limit.cancelled_caught:
            # Before the events are drained, because processes that end now record more.
            execution.failures.append(execution.timeout_failure())
        execution.drain()
        findings = () if limit.cancelled_caught else await execution.wait_for_exit()
    finally:
        with trio.move_on_after(CLEAN_UP, shield=True):
            await kill_all(environment)
    run = await execution.to_run_record(findings)
    return run, [*execution.failures, *run.missed]


@attrs.define(eq=False)
class _ScenarioExecution:
    """Progress of one scenario run: sessions started, events read, and failures found so far."""

    _scenario: Scenario
    _environment: ScenarioEnvironment
    _resumes: int
    session: SessionDirectory | None = None
    """Session that a `run` or `begin` step started last; None before the first."""
    failures: list[ScenarioFailure] = attrs.field(factory=list)
    _missed: list[ScenarioFailure] = attrs.field(factory=list)
    """One failure for each user action or fault that was triggered but could not be carried out."""
    _sessions: dict[SessionDirectory, str] = attrs.field(factory=dict)
    """All sessions started so far, each with its name in the scenario; the name is empty for a `run` step."""
    _events: list[SessionEvent] = attrs.field(factory=list)
    _codes: list[int | None] = attrs.field(factory=list)
    _seen: Counter[int] = attrs.field(factory=Counter)
    """Number of events so far that match the trigger of an action, by index of the action in the scenario."""
    _watch: SessionWatch | None = None

    async def run(self) -> None:
        """Run the commands of all steps and resumes in order; between two, wait a limited time for processes to end."""
        for number, action in enumerate(self._scenario.actions):
            if isinstance(action, IoFault) and action.when is None:
                self._add_io_fault(action, number)
        async with AsyncExitStack() as stack:
            for step in self._steps():
                if self._codes:
                    # Waits for cleanup processes only; the next command repairs the files that a kill leaves.
                    await wait_for_exit(self._environment, None)
                self._codes.append(None)
                self._codes[-1] = await self._step(step, stack)

    def _steps(self) -> Iterator[ScenarioStep]:
        yield from self._scenario.steps
        for _ in range(self._resumes):
            if self.session is None or self._codes[-1] in ENDED:
                return
            yield ScenarioStep(action="resume")

    async def _step(self, step: ScenarioStep, stack: AsyncExitStack) -> int:
        command = step_command(step, self._scenario, self._environment, self.session)
        if step.action in ("run", "begin"):
            name = step.to if step.action == "begin" else ""
            self._watch = SessionWatch(partial(self._register_session, name=name, is_last=True))
        assert self._watch is not None
        async with trio.open_nursery() as users:
            status = await self._watch.run(command, self._environment, stack, partial(self._handle, users=users))
        self.drain()
        return status

    def _register_session(self, line: bytes, name: str, *, is_last: bool = False) -> SessionDirectory:
        """Register the session in *line*, first output of `coterie run`, as *name*; set `session` if *is_last*."""
        session = SessionDirectory.find(msgspec.json.decode(line)["session"])
        self._sessions[session] = name
        if is_last:
            self.session = session
        return session

    def drain(self) -> None:
        """Read the recorded events that were not read yet into `_events`, without triggering actions."""
        if self._watch is not None:
            self._events += map(self._named, self._watch.drain())

    def _named(self, observed: SessionEvent) -> SessionEvent:
        names = (name for session, name in self._sessions.items() if session.id == observed.session)
        return qualify_event(next(names, ""), observed)

    def _handle(self, observed: SessionEvent, users: trio.Nursery) -> None:
        observed = self._named(observed)
        self._events.append(observed)
        for number, action in enumerate(self._scenario.actions):
            if action.when is not None and action.when.pattern.matches(observed):
                self._seen[number] += 1
                if self._seen[number] == action.when.nth:
                    self._start_action(action, number, observed, users)

    def _start_action(self, action: ScenarioAction, number: int, observed: SessionEvent, users: trio.Nursery) -> None:
        assert self.session is not None
        match action:
            case ProcessFault():
                self._apply_fault(action, self.session, users)
            case IoFault():
                self._add_io_fault(action, number)
            case UserAction(action="begin"):
                users.start_soon(self._run_second_session, action, self.session, users)
            case UserAction():
                named = (session for session, name in self._sessions.items() if name and name == action.session)
                users.start_soon(self._run_user_action, action, observed, next(named, self.session))

    async def _run_second_session(self, action: UserAction, before: SessionDirectory, users: trio.Nursery) -> None:
        watch = SessionWatch(partial(self._register_session, name=action.session))
        command = second_session_command(action.session, self._scenario, self._environment, before)
        async with AsyncExitStack() as stack:
            status = await watch.run(command, self._environment, stack, partial(self._handle, users=users))
            for observed in watch.drain():
                self._handle(observed, users)
        self._note(action, f"its `coterie run` exited with {status}" if status else None)

    def _apply_fault(self, fault: ProcessFault, session: SessionDirectory, nursery: trio.Nursery) -> None:
        hit = apply_fault(fault, self._environment, session, self._events)
        if not hit and fault.action != "jump":
            self._note(fault, f"the target {fault.target} had no process at this event; choose another")
        if fault.action == "stop" and fault.seconds:
            nursery.start_soon(_continue_later, hit, fault.seconds)

    def _add_io_fault(self, fault: IoFault, number: int) -> None:
        # The random choices of a fault depend on the seed of the run, and differ between faults.
        seed = hash((int(self._environment.variables[SEED_VARIABLE]), number))
        add_fault_rule(self._environment.faults, msgspec.structs.replace(fault.rule, id=number, seed=seed))

    async def _run_user_action(self, action: UserAction, observed: SessionEvent, session: SessionDirectory) -> None:
        self._note(action, await run_user_action(action, observed, session, self._environment))

    def _note(self, action: ScenarioAction, failure: str | None) -> None:
        if failure is not None:
            self._missed.append(ScenarioFailure(reason=f"{action} was not done: {failure}", line=action.line))

    async def wait_for_exit(self) -> tuple[str, ...]:
        """Wait a limited time for all processes to end; return those left, and problems found by `coterie doctor`."""
        sessions = self._sessions or (None,)
        return tuple([finding for each in sessions for finding in await wait_for_exit(self._environment, each)])

    def _undone(self) -> list[ScenarioFailure]:
        """Return one failure for each action whose trigger event never came, and each fault that was never applied."""
        injected = {fault.id for fault in read_injected_faults(self._environment.faults)}
        shown = log_tail(without_text_events(self._events))
        failures = []
        for number, action in enumerate(self._scenario.actions):
            if action.when is not None and self._seen[number] < action.when.nth:
                reason = f"{action} was not done: this event did not happen; correct its when"
            elif isinstance(action, IoFault) and number not in injected:
                reason = f"{action} was not done: no matching operation happened; correct its target or files"
            else:
                continue
            failures.append(ScenarioFailure(reason=reason, line=action.line, around=shown))
        return failures

    def timeout_failure(self) -> ScenarioFailure:
        """Return the failure to report when the run has reached its time limit, with the last state of each agent."""
        states = ", ".join(f"{name} is {state}" for name, state in self._states().items()) or "there was no agent yet"
        reason = f"the run was killed after {self._scenario.limits.seconds:g} seconds (limits.seconds): {states}"
        return ScenarioFailure(reason=reason, around=log_tail(without_text_events(self._events)))

    def _states(self) -> dict[str, str]:
        changes = (observed.event for observed in self._events)
        return {event.name: event.state for event in changes if isinstance(event, AgentChanged)}

    async def to_run_record(self, findings: tuple[str, ...]) -> ScenarioRun:
        """Return the record of the run, with mail, costs and injected faults read from the files of its sessions."""
        mail, ledger = [], list[LedgerEntry]()
        for session, name in self._sessions.items():
            mail += [qualify_hop(name, hop) for hop in await sweep_mail(session, self._environment.clock)]
            if (path := session.directory / LEDGER).exists():
                entries = read_ledger(path).lines
                ledger += [attrs.evolve(entry, agent=qualify_agent(name, entry.agent)) for entry in entries]
        errors = self._environment.errors.read_bytes()[-ERRORS_SHOWN:] if self._environment.errors.exists() else b""
        return ScenarioRun(
            project=self._environment.project,
            sessions=tuple(session.id for session in self._sessions),
            events=without_text_events(self._events),
            mail=mail,
            ledger=ledger,
            states=self._states(),
            exit_codes=tuple(self._codes),
            errors=errors.decode(errors="replace"),
            missed=[*self._missed, *self._undone()],
            injected_faults=read_injected_faults(self._environment.faults),
            findings=findings,
        )


async def _continue_later(processes: list[ScenarioProcess], seconds: float) -> None:
    await trio.sleep(seconds)
    for process in processes:
        process.send_signal(signal.SIGCONT)
