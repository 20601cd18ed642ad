"""The root's end of one agent's line: it serves the agent at the gate, and hears what it does."""

from collections.abc import Callable

import attrs
import trio

from coterie.agents.control.approval_words import DecidePlan, SubmitPlan, WithdrawPlan
from coterie.agents.control.asker import NOBODY
from coterie.agents.control.asking_words import Answered, Ask, TakeBack
from coterie.agents.control.compaction_words import Compaction, NotCompacted
from coterie.agents.control.gate_words import Admit, Admitted, Began, CoolDown, Left, Refused, Used, Voided
from coterie.agents.control.line import Line
from coterie.agents.control.word import Word
from coterie.agents.control.words import (
    AgentWord,
    AskedToEnd,
    AskToEnd,
    AtRest,
    AwaitRest,
    Begun,
    Deliver,
    Doing,
    Expect,
    GateWord,
    NotBegun,
    Over,
    OwnWord,
    Relayed,
    Release,
    Spawn,
    StopTask,
    TaskStopped,
    Unable,
    Wish,
)
from coterie.agents.errors import BudgetSpent, ControlLost
from coterie.agents.gate import Gate, Permit
from coterie.agents.permissions import Asker, Refusal
from coterie.agents.spawning import Spawned, Spawner, SpawnRefused
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import EnvelopeCorrupt
from coterie.orchestrator.approvals.of_agent import AgentApprovals
from coterie.orchestrator.tree.compactor import Compactor
from coterie.orchestrator.tree.hosting import Guests
from coterie.orchestrator.tree.plan_desk import PlanDesk


@attrs.define(eq=False)
class _Call:
    """A call of the agent, from its question to its last word."""

    permit: Permit | None = None
    has_left: trio.Event = attrs.field(factory=trio.Event)
    waiting: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def leave(self) -> None:
        """The agent is done with it, or does not want it any more."""
        self.has_left.set()
        if self.permit is None:
            self.waiting.cancel()


@attrs.define(eq=False)
class Desk:
    """Serves one start of one agent; `run` ends when the agent's end of the line does."""

    _gate: Gate
    """Closed by the caller when the agent is gone."""
    _hear: Callable[[AgentWord], None]
    """Told of every word."""
    _spawner: Spawner
    _asker: Asker | None = None
    """Who is asked for permissions; None refuses."""
    _agent: str = ""
    """Whose desk it is."""
    _approvals: AgentApprovals | None = None
    """What the agent asks others for, and decides; None where it has nobody."""
    guests: Guests = attrs.field(init=False)
    """Those whom the agent has started as tasks of its own process."""
    compactor: Compactor = attrs.field(init=False)
    """Has the agent compact its conversation."""
    _line: Line[AgentWord] | None = attrs.field(default=None, init=False)
    _calls: dict[int, _Call] = attrs.field(factory=dict, init=False)
    _questions: dict[int, trio.CancelScope] = attrs.field(factory=dict, init=False)
    _resting: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Around the wait for those whom the agent has started."""
    _plans: PlanDesk = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.guests = Guests(self._say)
        self.compactor = Compactor.over(self._say)
        self._plans = PlanDesk(self._say, self._approvals)

    async def run(self, line: Line[AgentWord]) -> None:
        """Talk on *line* until the agent has gone; what it holds at the gate by then is counted as used up.

        Its guests have ended then too. Raises `ControlLost`, in a group, for what is no word.
        """
        self._line = line
        try:
            async with trio.open_nursery() as nursery:
                while (word := await line.hear()) is not None:
                    if isinstance(word, Relayed | Over):
                        self.guests.hear(word)  # no word of the agent's own
                    else:
                        self._heed(word, nursery)
                nursery.cancel_scope.cancel()
        finally:
            self.guests.close()
            self.compactor.leave()

    def deliver(self, envelope: Envelope) -> None:
        """Hand the agent a message that it believes. Raises `ControlLost` if it has gone."""
        self._say(Deliver.of(envelope))

    @property
    def is_asking(self) -> bool:
        """Whether the agent waits for the user's answer."""
        return bool(self._questions)

    def release(self, name: str, why: str = "") -> None:
        """Let the agent go on without waiting for *name*, which it started. Raises `ControlLost` if it has gone."""
        self._say(Release(name=name, why=why))

    def announce(self, spawned: Spawned) -> None:
        """Let the agent expect a report of one that was started for it. Raises `ControlLost` if it has gone."""
        self._say(Expect(report=spawned.report))

    def _say(self, word: Word) -> None:
        if self._line is None:
            raise ControlLost("the agent has not begun")
        self._line.say(word)

    def _heed(self, word: OwnWord, nursery: trio.Nursery) -> None:
        self._hear(word)
        if isinstance(word, Compaction | NotCompacted):
            self.compactor.hear(word)
        elif isinstance(word, Admit | CoolDown | Left | Began | Used | Voided):
            self._heed_call(word, nursery)
        else:
            self._heed_wish(word, nursery)

    def _heed_call(self, word: GateWord, nursery: trio.Nursery) -> None:
        match word:
            case Admit():
                call = self._calls[word.call] = _Call()
                nursery.start_soon(self._admit, word, call)
            case CoolDown():
                self._gate.cool_down(word.seconds)
            case Left():
                self._call(word.call).leave()
            case Began() | Used() | Voided():
                self._report(word)

    def _heed_wish(self, word: Wish, nursery: trio.Nursery) -> None:
        match word:
            case Spawn():
                nursery.start_soon(self._spawn, word)
            case StopTask():
                nursery.start_soon(self._stop_task, word)
            case AskToEnd():
                nursery.start_soon(self._ask_to_end, word)
            case AwaitRest():
                self._resting.cancel()  # who asks again does not wait for the last answer
                self._resting = trio.CancelScope()
                nursery.start_soon(self._await_rest, word, self._resting)
            case Doing() | Unable():
                pass  # it says so, and that is all
            case Ask():
                scope = self._questions[word.call] = trio.CancelScope()
                nursery.start_soon(self._ask, word, scope)
            case TakeBack():
                if (open_ := self._questions.get(word.call)) is not None:  # else the answer is on its way
                    open_.cancel()
            case SubmitPlan() | WithdrawPlan() | DecidePlan():
                self._plans.heed(word, nursery)

    def _report(self, word: Began | Used | Voided) -> None:
        permit = self._call(word.call).permit
        if permit is None:
            raise ControlLost(f"call {word.call} was not admitted")
        match word:
            case Began():
                permit.begin()
            case Used():
                permit.settle(word.usage, is_whole=word.is_whole)
            case Voided():
                permit.void()

    def _call(self, number: int) -> _Call:
        try:
            return self._calls[number]
        except KeyError as exc:
            raise ControlLost(f"there is no call {number}") from exc

    async def _admit(self, word: Admit, call: _Call) -> None:
        try:
            with call.waiting:
                async with self._gate.admit(word.intent()) as call.permit:
                    self._say(Admitted(call=word.call))
                    await call.has_left.wait()
        except BudgetSpent as exc:
            self._say(Refused.of(word.call, exc))
            await call.has_left.wait()
        finally:
            del self._calls[word.call]

    async def _ask(self, word: Ask, scope: trio.CancelScope) -> None:
        question = attrs.evolve(word.question(), agent=self._agent)
        try:
            with scope:
                answer = Refusal(NOBODY) if self._asker is None else await self._asker.ask(question)
                self._say(Answered.of(word.call, answer))
            if scope.cancelled_caught and self._approvals is not None:
                await self._approvals.take_back(question)
        finally:
            del self._questions[word.call]

    async def _spawn(self, word: Spawn) -> None:
        try:
            spawned = await self._spawner.spawn(word.request())
        except SpawnRefused as exc:
            self._say(NotBegun(call=word.call, reason=exc.reason))
        else:
            self._say(Begun.of(word.call, spawned))

    async def _await_rest(self, word: AwaitRest, scope: trio.CancelScope) -> None:
        with scope:
            await self._spawner.rest()
            self._say(AtRest(call=word.call))

    async def _ask_to_end(self, word: AskToEnd) -> None:
        try:
            await self._spawner.ask_to_end(word.envelope())
        except (SpawnRefused, EnvelopeCorrupt) as exc:
            reason = exc.reason if isinstance(exc, SpawnRefused) else str(exc)
            self._say(AskedToEnd(call=word.call, refusal=reason))
        else:
            self._say(AskedToEnd(call=word.call))

    async def _stop_task(self, word: StopTask) -> None:
        try:
            await self._spawner.stop(word.name)
        except SpawnRefused as exc:
            self._say(TaskStopped(call=word.call, refusal=exc.reason))
        else:
            self._say(TaskStopped(call=word.call))
