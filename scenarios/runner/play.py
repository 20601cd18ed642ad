"""One play of a story: its commands one after another, and whatever happens at their events."""

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial

import attrs
import msgspec
import trio

from coterie.agents.events import AgentChanged
from coterie.orchestrator.cli.exit_codes import ExitCode
from coterie.orchestrator.cli.mail.traffic import Traffic
from coterie.orchestrator.events.following import Follower, open_follower
from coterie.orchestrator.events.observed import Observed
from coterie.orchestrator.fault_orders import add_order, read_strikes
from coterie.orchestrator.ledger import LEDGER, LedgerLine, read_ledger
from coterie.orchestrator.post_office import PostOffice
from coterie.orchestrator.session import Session
from coterie.scenarios.runner.beside import Beside, event_of, line_of, passage_of
from coterie.scenarios.runner.commands import begin_command, do_for_human, run_to_end, step_command
from coterie.scenarios.runner.faults import strike
from coterie.scenarios.runner.played import Failure, Played, notable, tail
from coterie.scenarios.runner.processes import Process, send
from coterie.scenarios.runner.settling import end_everything, settle
from coterie.scenarios.runner.stage import SEED_VARIABLE, Stage
from coterie.scenarios.runner.story import Act, Disturbance, Fault, HumanAct, Step, Story

CLEAN_UP = 30.0
"""Seconds for what must be done also after a cancellation."""
ERRORS_SHOWN = 4000
ENDED = (ExitCode.DONE, ExitCode.USAGE, ExitCode.BUDGET_SPENT, ExitCode.APPROVAL_REFUSED)
"""Codes of a run behind which there is nothing to resume."""


async def play(story: Story, stage: Stage, *, resumes: int = 0) -> tuple[Played, list[Failure]]:
    """Play *story* on *stage*, to its end or its limit; what is left of it, and what went wrong on the way.

    A session that was cut off is resumed as many times as *resumes* says, behind the story's own commands. No process
    is left when this returns, or is cancelled.
    """
    acting = _Acting(story, stage, resumes)
    try:
        with trio.move_on_after(story.limits.seconds) as limit:
            await acting.run()
        if limit.cancelled_caught:
            # Before the rest is read: what ends now tells of its end.
            acting.failures.append(acting.hung())
        acting.drain()
        findings = () if limit.cancelled_caught else await acting.settle()
    finally:
        with trio.move_on_after(CLEAN_UP, shield=True):
            await end_everything(stage)
    played = await acting.played(findings)
    return played, [*acting.failures, *played.missed]


@attrs.define(eq=False)
class _Acting:
    """A play under way."""

    _story: Story
    _stage: Stage
    _resumes: int
    session: Session | None = None
    """The last that was begun."""
    failures: list[Failure] = attrs.field(factory=list)
    _missed: list[Failure] = attrs.field(factory=list)
    """What could not be done when its moment had come."""
    _sessions: dict[Session, str] = attrs.field(factory=dict)
    """With the names by which the story tells others than the first apart."""
    _events: list[Observed] = attrs.field(factory=list)
    _codes: list[int | None] = attrs.field(factory=list)
    _seen: Counter[int] = attrs.field(factory=Counter)
    """How often the moment of each act has come, by its place among them."""
    _follower: Follower | None = None

    async def run(self) -> None:
        """Run the commands, each when nobody is left of the one before."""
        for number, act in enumerate(self._story.acts):
            if isinstance(act, Disturbance) and act.when is None:
                self._disturb(act, number)
        async with AsyncExitStack() as stack:
            for step in self._steps():
                if self._codes:
                    # Who clean up are processes too; what a kill of everything leaves is the next command's to mend.
                    await settle(self._stage, None)
                self._codes.append(None)
                self._codes[-1] = await self._step(step, stack)

    def _steps(self) -> Iterator[Step]:
        yield from self._story.steps
        for _ in range(self._resumes):
            if self.session is None or self._codes[-1] in ENDED:
                return
            yield Step(deed="resume")

    async def _step(self, step: Step, stack: AsyncExitStack) -> int:
        command = step_command(step, self._story, self._stage, self.session)
        began = trio.Event()
        async with trio.open_nursery() as humans, trio.open_nursery() as watching:
            if step.deed in ("run", "begin"):
                self._follower = None
                watching.start_soon(self._begin, began, stack, humans)
            else:
                watching.start_soon(self._watch, humans)
            status = await run_to_end(command, self._stage, partial(self._hear, step=step, began=began))
            watching.cancel_scope.cancel()
        self.drain()
        return status

    def _hear(self, line: bytes, *, step: Step, began: trio.Event) -> None:
        if not began.is_set() and self._follower is None:
            self.session = self._join(line, step.to if step.deed == "begin" else "")
            began.set()

    def _join(self, line: bytes, name: str) -> Session:
        """The first line that a run prints names its session."""
        session = Session.find(msgspec.json.decode(line)["session"])
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
            self._see(observed, humans)

    def drain(self) -> None:
        """Take in what was recorded last; nothing can be done about it any more."""
        while self._follower is not None and (observed := self._follower.take_nowait()) is not None:
            self._events.append(self._named(observed))

    def _named(self, observed: Observed) -> Observed:
        names = (name for session, name in self._sessions.items() if session.id == observed.session)
        return event_of(next(names, ""), observed)

    def _see(self, observed: Observed, humans: trio.Nursery) -> None:
        observed = self._named(observed)
        self._events.append(observed)
        for number, act in enumerate(self._story.acts):
            if act.when is not None and act.when.pattern.matches(observed):
                self._seen[number] += 1
                if self._seen[number] == act.when.nth:
                    self._do(act, number, observed, humans)

    def _do(self, act: Act, number: int, observed: Observed, humans: trio.Nursery) -> None:
        assert self.session is not None
        match act:
            case Fault():
                self._strike(act, self.session, humans)
            case Disturbance():
                self._disturb(act, number)
            case HumanAct(deed="begin"):
                humans.start_soon(self._beside, act, self.session, humans)
            case HumanAct():
                humans.start_soon(self._do_for_human, act, observed, self._meant(act))

    def _meant(self, act: HumanAct) -> Session:
        """The session in which the human does it."""
        assert self.session is not None
        return next((session for session, name in self._sessions.items() if name and name == act.session), self.session)

    async def _beside(self, act: HumanAct, before: Session, humans: trio.Nursery) -> None:
        beside = Beside(partial(self._join, name=act.session), partial(self._see, humans=humans))
        status = await beside.run(begin_command(act.session, self._story, self._stage, before), self._stage)
        self._note(act, f"it ended with {status}" if status else None)

    def _strike(self, act: Fault, session: Session, nursery: trio.Nursery) -> None:
        struck = strike(act, self._stage, session, self._events)
        if not struck and act.deed != "jump":
            self._note(act, f"{act.target} had no process then")
        if act.deed == "stop" and act.seconds:
            nursery.start_soon(_let_go_on, struck, act.seconds)

    def _disturb(self, act: Disturbance, number: int) -> None:
        # What is drawn for each order follows from the seed of the play, and is another for each.
        seed = hash((int(self._stage.environment[SEED_VARIABLE]), number))
        add_order(self._stage.faults, msgspec.structs.replace(act.order, id=number, seed=seed))

    async def _do_for_human(self, act: HumanAct, observed: Observed, session: Session) -> None:
        self._note(act, await do_for_human(act, observed, session, self._stage))

    def _note(self, act: Act, failure: str | None) -> None:
        if failure is not None:
            self._missed.append(Failure(reason=f"{act} was not done: {failure}", line=act.line))

    async def settle(self) -> tuple[str, ...]:
        """What is left behind of any session."""
        return tuple([finding for each in self._sessions or (None,) for finding in await settle(self._stage, each)])

    def _undone(self) -> list[Failure]:
        """The acts whose moment never came, or that met nothing."""
        struck = {strike.id for strike in read_strikes(self._stage.faults)}
        shown = tail(notable(self._events))
        failures = []
        for number, act in enumerate(self._story.acts):
            if act.when is not None and self._seen[number] < act.when.nth:
                reason = f"{act} was not done: its moment never came"
            elif isinstance(act, Disturbance) and number not in struck:
                reason = f"{act} was not done: it met nothing that it is meant for"
            else:
                continue
            failures.append(Failure(reason=reason, line=act.line, around=shown))
        return failures

    def hung(self) -> Failure:
        """What the limit has cut off."""
        states = ", ".join(f"{name} is {state}" for name, state in self._states().items()) or "there was no agent yet"
        reason = f"it has not ended in {self._story.limits.seconds:g} seconds: {states}"
        return Failure(reason=reason, around=tail(notable(self._events)))

    def _states(self) -> dict[str, str]:
        changes = (observed.event for observed in self._events)
        return {event.name: event.state for event in changes if isinstance(event, AgentChanged)}

    async def played(self, findings: tuple[str, ...]) -> Played:
        """What is left of it."""
        mail, ledger = [], list[LedgerLine]()
        for session, name in self._sessions.items():
            with PostOffice.of(session, self._stage.clock) as office:
                traffic = Traffic.of(office)
                mail += [passage_of(name, passage) for passage in await traffic.sweep()]
                traffic.close()
            if (path := session.directory / LEDGER).exists():
                ledger += [line_of(name, line) for line in read_ledger(path).lines]
        errors = self._stage.errors.read_bytes()[-ERRORS_SHOWN:] if self._stage.errors.exists() else b""
        return Played(
            project=self._stage.project,
            sessions=tuple(session.id for session in self._sessions),
            events=notable(self._events),
            mail=mail,
            ledger=ledger,
            states=self._states(),
            exit_codes=tuple(self._codes),
            errors=errors.decode(errors="replace"),
            missed=[*self._missed, *self._undone()],
            strikes=read_strikes(self._stage.faults),
            findings=findings,
        )


async def _let_go_on(processes: list[Process], seconds: float) -> None:
    await trio.sleep(seconds)
    for process in processes:
        send(process, signal.SIGCONT)
