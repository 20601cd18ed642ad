"""Runs a scenario once: its commands in order, with actions and faults at their events."""

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
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.cli.mail.message_history import MessageHistory
from coterie.orchestrator.cli.output import ExitCode
from coterie.orchestrator.events.follower import EventFollower, open_follower
from coterie.orchestrator.gateway.ledger import LEDGER, LedgerEntry, read_ledger
from coterie.orchestrator.processes.zygote import TITLE
from coterie.orchestrator.session.overview import END_STATES
from coterie.orchestrator.session.root_lock import find_root
from coterie.scenarios.runner.environment import SEED_VARIABLE, ScenarioEnvironment
from coterie.scenarios.runner.run_record import ScenarioFailure, ScenarioRun, log_tail, without_text_events
from coterie.scenarios.runner.scenario import (
    EVERYTHING,
    LEAD,
    ROOT,
    ZYGOTE,
    IoFault,
    ProcessFault,
    ProcessFaultKind,
    Scenario,
    ScenarioAction,
    ScenarioStep,
    UserAction,
)
from coterie.scenarios.runner.scenario_processes import ScenarioProcess, find_processes, kill_all, wait_for_exit
from coterie.scenarios.runner.second_session import SecondSessionRun, qualify_entry, qualify_event, qualify_hop
from coterie.scenarios.runner.user_commands import run_command, run_user_action, second_session_command, step_command
from coterie.session_directory import MAIN, SessionDirectory

_SIGNALS: Mapping[ProcessFaultKind, signal.Signals] = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "continue": signal.SIGCONT,
}

TITLE_LENGTH = 15
"""Characters of a process's title that the kernel keeps."""


def apply_fault(
    fault: ProcessFault, stage: ScenarioEnvironment, session: SessionDirectory, events: Iterable[SessionEvent]
) -> list[ScenarioProcess]:
    """Do what *fault* says, at once; the processes that it met. Blocks for a moment."""
    if fault.deed == "jump":
        stage.clock.advance(fault.seconds)
        return []
    victims = _victims(fault.target, stage, session, events)
    return [process for process in victims if process.send_signal(_SIGNALS[fault.deed])]


def agent_pids(events: Iterable[SessionEvent]) -> dict[str, int]:
    """The process of each agent that has one, as far as it was told of."""
    found: dict[str, int] = {}
    for observed in events:
        if isinstance(event := observed.event, AgentChanged):
            if event.state in END_STATES:
                found.pop(event.name, None)
            elif event.pid is not None:
                found[event.name] = event.pid
    return found


def _victims(
    target: str, stage: ScenarioEnvironment, session: SessionDirectory, events: Iterable[SessionEvent]
) -> list[ScenarioProcess]:
    processes = find_processes(stage.home)
    root = find_root(session)
    if target == EVERYTHING:
        # The root first, or it would begin to mend what is struck.
        return sorted(processes, key=lambda process: root is None or process.pid != root.pid)
    if target == ROOT:
        return [process for process in processes if root is not None and process.pid == root.pid]
    if target == ZYGOTE:
        return [process for process in processes if process.name == TITLE[:TITLE_LENGTH]]
    agent = MAIN if target == LEAD else target
    pid = agent_pids(events).get(agent)
    if pid is None:
        # It may be at work before the root has told its number; then its title names it, if that is no other's too.
        titled = [process for process in processes if process.name == f"coterie {agent}"[:TITLE_LENGTH]]
        return titled if len(titled) == 1 else []
    return [process for process in processes if process.pid == pid]


CLEAN_UP = 30.0
"""Seconds for what must be done also after a cancellation."""
ERRORS_SHOWN = 4000
ENDED = (ExitCode.DONE, ExitCode.USAGE, ExitCode.BUDGET_SPENT, ExitCode.APPROVAL_REFUSED)
"""Codes of a run behind which there is nothing to resume."""


async def run_scenario(
    story: Scenario, stage: ScenarioEnvironment, *, resumes: int = 0
) -> tuple[ScenarioRun, list[ScenarioFailure]]:
    """Play *story* on *stage*, to its end or its limit; what is left of it, and what went wrong on the way.

    A session that was cut off is resumed as many times as *resumes* says, behind the story's own commands. No process
    is left when this returns, or is cancelled.
    """
    acting = _ScenarioExecution(story, stage, resumes)
    try:
        with trio.move_on_after(story.limits.seconds) as limit:
            await acting.run()
        if limit.cancelled_caught:
            # Before the rest is read: what ends now tells of its end.
            acting.failures.append(acting.timeout_failure())
        acting.drain()
        findings = () if limit.cancelled_caught else await acting.wait_for_exit()
    finally:
        with trio.move_on_after(CLEAN_UP, shield=True):
            await kill_all(stage)
    played = await acting.to_run_record(findings)
    return played, [*acting.failures, *played.missed]


@attrs.define(eq=False)
class _ScenarioExecution:
    """A play under way."""

    _story: Scenario
    _stage: ScenarioEnvironment
    _resumes: int
    session: SessionDirectory | None = None
    """The last that was begun."""
    failures: list[ScenarioFailure] = attrs.field(factory=list)
    _missed: list[ScenarioFailure] = attrs.field(factory=list)
    """What could not be done when its moment had come."""
    _sessions: dict[SessionDirectory, str] = attrs.field(factory=dict)
    """With the names by which the story tells others than the first apart."""
    _events: list[SessionEvent] = attrs.field(factory=list)
    _codes: list[int | None] = attrs.field(factory=list)
    _seen: Counter[int] = attrs.field(factory=Counter)
    """How often the moment of each act has come, by its place among them."""
    _follower: EventFollower | None = None

    async def run(self) -> None:
        """Run the commands, each when nobody is left of the one before."""
        for number, act in enumerate(self._story.acts):
            if isinstance(act, IoFault) and act.when is None:
                self._add_io_fault(act, number)
        async with AsyncExitStack() as stack:
            for step in self._steps():
                if self._codes:
                    # Who clean up are processes too; what a kill of everything leaves is the next command's to mend.
                    await wait_for_exit(self._stage, None)
                self._codes.append(None)
                self._codes[-1] = await self._step(step, stack)

    def _steps(self) -> Iterator[ScenarioStep]:
        yield from self._story.steps
        for _ in range(self._resumes):
            if self.session is None or self._codes[-1] in ENDED:
                return
            yield ScenarioStep(deed="resume")

    async def _step(self, step: ScenarioStep, stack: AsyncExitStack) -> int:
        command = step_command(step, self._story, self._stage, self.session)
        began = trio.Event()
        async with trio.open_nursery() as humans, trio.open_nursery() as watching:
            if step.deed in ("run", "begin"):
                self._follower = None
                watching.start_soon(self._begin, began, stack, humans)
            else:
                watching.start_soon(self._watch, humans)
            status = await run_command(command, self._stage, partial(self._read_line, step=step, began=began))
            watching.cancel_scope.cancel()
        self.drain()
        return status

    def _read_line(self, line: bytes, *, step: ScenarioStep, began: trio.Event) -> None:
        if not began.is_set() and self._follower is None:
            self.session = self._join(line, step.to if step.deed == "begin" else "")
            began.set()

    def _join(self, line: bytes, name: str) -> SessionDirectory:
        """The first line that a run prints names its session."""
        session = SessionDirectory.find(msgspec.json.decode(line)["session"])
        self._sessions[session] = name
        return session

    async def _begin(self, began: trio.Event, stack: AsyncExitStack, humans: trio.Nursery) -> None:
        await began.wait()
        assert self.session is not None
        self._follower = await stack.enter_async_context(open_follower(self.session.directory))
        await self._watch(humans)

    async def _watch(self, humans: trio.Nursery) -> None:
        assert self._follower is not None
        async for observed in self._follower:
            self._handle(observed, humans)

    def drain(self) -> None:
        """Take in what was recorded last; nothing can be done about it any more."""
        while self._follower is not None and (observed := self._follower.take_nowait()) is not None:
            self._events.append(self._named(observed))

    def _named(self, observed: SessionEvent) -> SessionEvent:
        names = (name for session, name in self._sessions.items() if session.id == observed.session)
        return qualify_event(next(names, ""), observed)

    def _handle(self, observed: SessionEvent, humans: trio.Nursery) -> None:
        observed = self._named(observed)
        self._events.append(observed)
        for number, act in enumerate(self._story.acts):
            if act.when is not None and act.when.pattern.matches(observed):
                self._seen[number] += 1
                if self._seen[number] == act.when.nth:
                    self._start_action(act, number, observed, humans)

    def _start_action(self, act: ScenarioAction, number: int, observed: SessionEvent, humans: trio.Nursery) -> None:
        assert self.session is not None
        match act:
            case ProcessFault():
                self._apply_fault(act, self.session, humans)
            case IoFault():
                self._add_io_fault(act, number)
            case UserAction(deed="begin"):
                humans.start_soon(self._run_second_session, act, self.session, humans)
            case UserAction():
                humans.start_soon(self._run_user_action, act, observed, self._session_of(act))

    def _session_of(self, act: UserAction) -> SessionDirectory:
        """The session in which the human does it."""
        assert self.session is not None
        return next((session for session, name in self._sessions.items() if name and name == act.session), self.session)

    async def _run_second_session(self, act: UserAction, before: SessionDirectory, humans: trio.Nursery) -> None:
        beside = SecondSessionRun(partial(self._join, name=act.session), partial(self._handle, humans=humans))
        status = await beside.run(second_session_command(act.session, self._story, self._stage, before), self._stage)
        self._note(act, f"it ended with {status}" if status else None)

    def _apply_fault(self, act: ProcessFault, session: SessionDirectory, nursery: trio.Nursery) -> None:
        struck = apply_fault(act, self._stage, session, self._events)
        if not struck and act.deed != "jump":
            self._note(act, f"{act.target} had no process then")
        if act.deed == "stop" and act.seconds:
            nursery.start_soon(_continue_later, struck, act.seconds)

    def _add_io_fault(self, act: IoFault, number: int) -> None:
        # What is drawn for each order follows from the seed of the play, and is another for each.
        seed = hash((int(self._stage.environment[SEED_VARIABLE]), number))
        add_fault_rule(self._stage.faults, msgspec.structs.replace(act.order, id=number, seed=seed))

    async def _run_user_action(self, act: UserAction, observed: SessionEvent, session: SessionDirectory) -> None:
        self._note(act, await run_user_action(act, observed, session, self._stage))

    def _note(self, act: ScenarioAction, failure: str | None) -> None:
        if failure is not None:
            self._missed.append(ScenarioFailure(reason=f"{act} was not done: {failure}", line=act.line))

    async def wait_for_exit(self) -> tuple[str, ...]:
        """What is left behind of any session."""
        return tuple(
            [finding for each in self._sessions or (None,) for finding in await wait_for_exit(self._stage, each)]
        )

    def _undone(self) -> list[ScenarioFailure]:
        """The acts whose moment never came, or that met nothing."""
        struck = {strike.id for strike in read_injected_faults(self._stage.faults)}
        shown = log_tail(without_text_events(self._events))
        failures = []
        for number, act in enumerate(self._story.acts):
            if act.when is not None and self._seen[number] < act.when.nth:
                reason = f"{act} was not done: its moment never came"
            elif isinstance(act, IoFault) and number not in struck:
                reason = f"{act} was not done: it met nothing that it is meant for"
            else:
                continue
            failures.append(ScenarioFailure(reason=reason, line=act.line, around=shown))
        return failures

    def timeout_failure(self) -> ScenarioFailure:
        """What the limit has cut off."""
        states = ", ".join(f"{name} is {state}" for name, state in self._states().items()) or "there was no agent yet"
        reason = f"it has not ended in {self._story.limits.seconds:g} seconds: {states}"
        return ScenarioFailure(reason=reason, around=log_tail(without_text_events(self._events)))

    def _states(self) -> dict[str, str]:
        changes = (observed.event for observed in self._events)
        return {event.name: event.state for event in changes if isinstance(event, AgentChanged)}

    async def to_run_record(self, findings: tuple[str, ...]) -> ScenarioRun:
        """What is left of it."""
        mail, ledger = [], list[LedgerEntry]()
        for session, name in self._sessions.items():
            with SessionMail.open(session, self._stage.clock) as office:
                traffic = MessageHistory.of(office)
                mail += [qualify_hop(name, passage) for passage in await traffic.sweep()]
                traffic.close()
            if (path := session.directory / LEDGER).exists():
                ledger += [qualify_entry(name, line) for line in read_ledger(path).lines]
        errors = self._stage.errors.read_bytes()[-ERRORS_SHOWN:] if self._stage.errors.exists() else b""
        return ScenarioRun(
            project=self._stage.project,
            sessions=tuple(session.id for session in self._sessions),
            events=without_text_events(self._events),
            mail=mail,
            ledger=ledger,
            states=self._states(),
            exit_codes=tuple(self._codes),
            errors=errors.decode(errors="replace"),
            missed=[*self._missed, *self._undone()],
            strikes=read_injected_faults(self._stage.faults),
            findings=findings,
        )


async def _continue_later(processes: list[ScenarioProcess], seconds: float) -> None:
    await trio.sleep(seconds)
    for process in processes:
        process.send_signal(signal.SIGCONT)
