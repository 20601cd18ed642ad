"""Root's end of the channel to one agent: model calls, spawn requests, prompts, plans and compaction."""

from collections.abc import Callable
from functools import partial

import attrs
import trio

from coterie.agents.errors import BudgetSpent, ControlLost
from coterie.agents.loop.model.gateway import Gateway, Permit
from coterie.agents.permissions.types import DenyCall, UserPrompter
from coterie.agents.root_link.approval_messages import (
    DecidePlan,
    PromptAnswered,
    PromptUser,
    SubmitPlan,
    WithdrawPlan,
    WithdrawPrompt,
)
from coterie.agents.root_link.channel import MessageChannel, PendingRequests
from coterie.agents.root_link.job_messages import CompactionDone, CompactJob, NotCompacted, Pivot
from coterie.agents.root_link.message import WireMessage
from coterie.agents.root_link.messages import (
    ActivityChanged,
    AdmitCall,
    AgentMessage,
    AgentRequest,
    AwaitIdle,
    CallAbandoned,
    CallAdmitted,
    CallRefused,
    CallUsed,
    CallVoided,
    ChildrenIdle,
    DeliverMessage,
    ExpectReport,
    GatewayMessage,
    OwnMessage,
    RateLimited,
    RelayedMessage,
    ReplyBegan,
    RequestShutdown,
    RunFailed,
    RunOver,
    ShutdownForwarded,
    Spawn,
    SpawnFailed,
    SpawnStarted,
    StopTask,
    StopWaiting,
    TaskStopped,
)
from coterie.agents.root_link.remote_services import NO_USER
from coterie.agents.root_link.spawn_request import Spawned, Spawner, SpawnRefused
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import EnvelopeCorrupt
from coterie.orchestrator.approvals.agent_approvals import AgentApprovals
from coterie.orchestrator.supervisor.in_process_agents import InProcessAgents

AGENT_GONE = "it has ended before that was done"


@attrs.define(eq=False)
class CompactionClient:
    """Asks one agent's process. Whoever reads the line passes the answers to `handle`. Several may ask at once."""

    _questions: PendingRequests[CompactionDone | NotCompacted]
    _is_there: bool = attrs.field(default=True, init=False)

    @classmethod
    def over(cls, say: Callable[[WireMessage], None]) -> "CompactionClient":
        """One that asks by *say*."""
        return cls(PendingRequests(say))

    async def compact(self, pivot: Pivot | None) -> CompactionDone | NotCompacted:
        """Wait for the agent's answer. Cancelled, the agent is compacted all the same. Raises `ControlLost`."""
        if not self._is_there:
            raise ControlLost("the agent has gone")
        return await self._questions.request(partial(CompactJob.of, pivot=pivot))

    def handle(self, answer: CompactionDone | NotCompacted) -> None:
        """Let whoever asked go on."""
        self._questions.resolve(answer)

    def close(self) -> None:
        """The agent answers no more."""
        self._is_there = False
        for number in self._questions.numbers():
            self.handle(NotCompacted(call=number, reason=AGENT_GONE))


PlanMessage = SubmitPlan | WithdrawPlan | DecidePlan


@attrs.define(eq=False)
class PlanRequestHandler:
    """Serves one start of one agent."""

    _send: Callable[[WireMessage], None]
    _approvals: AgentApprovals | None
    """None where nobody judges."""
    _open: dict[int, trio.CancelScope] = attrs.field(factory=dict, init=False)

    def handle(self, word: PlanMessage, nursery: trio.Nursery) -> None:
        """Begin what *word* asks for, in *nursery*. Raises `ControlLost` where nobody judges."""
        if self._approvals is None:
            raise ControlLost("there are no approvals here")
        match word:
            case SubmitPlan():
                scope = self._open[word.call] = trio.CancelScope()
                nursery.start_soon(self._submit, self._approvals, word, scope)
            case WithdrawPlan() if word.call in self._open:  # else the judgement is on its way
                self._open[word.call].cancel()
            case DecidePlan():
                nursery.start_soon(self._decide, self._approvals, word)

    async def _submit(self, approvals: AgentApprovals, word: SubmitPlan, scope: trio.CancelScope) -> None:
        """Have a plan judged. It stays open if the agent dies: only its own word withdraws it."""
        try:
            with scope:
                self._send(await approvals.submit(word))
            if scope.cancelled_caught:
                await approvals.withdraw(word)
        finally:
            del self._open[word.call]

    async def _decide(self, approvals: AgentApprovals, word: DecidePlan) -> None:
        self._send(await approvals.decide(word))


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
class AgentConnection:
    """Serves one start of one agent; `run` ends when the agent's end of the line does."""

    _gate: Gateway
    """Closed by the caller when the agent is gone."""
    _on_message: Callable[[AgentMessage], None]
    """Told of every word."""
    _spawner: Spawner
    _prompter: UserPrompter | None = None
    """Who is asked for permissions; None refuses."""
    _agent: str = ""
    """Whose desk it is."""
    _approvals: AgentApprovals | None = None
    """What the agent asks others for, and decides; None where it has nobody."""
    in_process: InProcessAgents = attrs.field(init=False)
    """Those whom the agent has started as tasks of its own process."""
    compactor: CompactionClient = attrs.field(init=False)
    """Has the agent compact its conversation."""
    _channel: MessageChannel[AgentMessage] | None = attrs.field(default=None, init=False)
    _calls: dict[int, _Call] = attrs.field(factory=dict, init=False)
    _questions: dict[int, trio.CancelScope] = attrs.field(factory=dict, init=False)
    _idle_wait: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Around the wait for those whom the agent has started."""
    _plans: PlanRequestHandler = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.in_process = InProcessAgents(self._send)
        self.compactor = CompactionClient.over(self._send)
        self._plans = PlanRequestHandler(self._send, self._approvals)

    async def run(self, line: MessageChannel[AgentMessage]) -> None:
        """Talk on *line* until the agent has gone; what it holds at the gate by then is counted as used up.

        Its guests have ended then too. Raises `ControlLost`, in a group, for what is no word.
        """
        self._channel = line
        try:
            async with trio.open_nursery() as nursery:
                while (word := await line.receive()) is not None:
                    if isinstance(word, RelayedMessage | RunOver):
                        self.in_process.handle(word)  # no word of the agent's own
                    else:
                        self._handle(word, nursery)
                nursery.cancel_scope.cancel()
        finally:
            self.in_process.close()
            self.compactor.close()

    def deliver(self, envelope: Envelope) -> None:
        """Hand the agent a message that it believes. Raises `ControlLost` if it has gone."""
        self._send(DeliverMessage.of(envelope))

    @property
    def is_awaiting_answer(self) -> bool:
        """Whether the agent waits for the user's answer."""
        return bool(self._questions)

    def send_release(self, name: str, why: str = "") -> None:
        """Let the agent go on without waiting for *name*, which it started. Raises `ControlLost` if it has gone."""
        self._send(StopWaiting(name=name, why=why))

    def send_spawned(self, spawned: Spawned) -> None:
        """Let the agent expect a report of one that was started for it. Raises `ControlLost` if it has gone."""
        self._send(ExpectReport(report=spawned.report))

    def _send(self, word: WireMessage) -> None:
        if self._channel is None:
            raise ControlLost("the agent has not begun")
        self._channel.send(word)

    def _handle(self, word: OwnMessage, nursery: trio.Nursery) -> None:
        self._on_message(word)
        if isinstance(word, CompactionDone | NotCompacted):
            self.compactor.handle(word)
        elif isinstance(word, AdmitCall | RateLimited | CallAbandoned | ReplyBegan | CallUsed | CallVoided):
            self._handle_call(word, nursery)
        else:
            self._handle_request(word, nursery)

    def _handle_call(self, word: GatewayMessage, nursery: trio.Nursery) -> None:
        match word:
            case AdmitCall():
                call = self._calls[word.call] = _Call()
                nursery.start_soon(self._admit, word, call)
            case RateLimited():
                self._gate.cool_down(word.seconds)
            case CallAbandoned():
                self._call(word.call).leave()
            case ReplyBegan() | CallUsed() | CallVoided():
                self._report(word)

    def _handle_request(self, word: AgentRequest, nursery: trio.Nursery) -> None:
        match word:
            case Spawn():
                nursery.start_soon(self._spawn, word)
            case StopTask():
                nursery.start_soon(self._stop_task, word)
            case RequestShutdown():
                nursery.start_soon(self._request_shutdown, word)
            case AwaitIdle():
                self._idle_wait.cancel()  # who asks again does not wait for the last answer
                self._idle_wait = trio.CancelScope()
                nursery.start_soon(self._await_idle, word, self._idle_wait)
            case ActivityChanged() | RunFailed():
                pass  # it says so, and that is all
            case PromptUser():
                scope = self._questions[word.call] = trio.CancelScope()
                nursery.start_soon(self._ask, word, scope)
            case WithdrawPrompt():
                if (open_ := self._questions.get(word.call)) is not None:  # else the answer is on its way
                    open_.cancel()
            case SubmitPlan() | WithdrawPlan() | DecidePlan():
                self._plans.handle(word, nursery)

    def _report(self, word: ReplyBegan | CallUsed | CallVoided) -> None:
        permit = self._call(word.call).permit
        if permit is None:
            raise ControlLost(f"call {word.call} was not admitted")
        match word:
            case ReplyBegan():
                permit.begin()
            case CallUsed():
                permit.settle(word.usage, is_whole=word.is_whole)
            case CallVoided():
                permit.void()

    def _call(self, number: int) -> _Call:
        try:
            return self._calls[number]
        except KeyError as exc:
            raise ControlLost(f"there is no call {number}") from exc

    async def _admit(self, word: AdmitCall, call: _Call) -> None:
        try:
            with call.waiting:
                async with self._gate.admit(word.intent()) as call.permit:
                    self._send(CallAdmitted(call=word.call))
                    await call.has_left.wait()
        except BudgetSpent as exc:
            self._send(CallRefused.of(word.call, exc))
            await call.has_left.wait()
        finally:
            del self._calls[word.call]

    async def _ask(self, word: PromptUser, scope: trio.CancelScope) -> None:
        question = attrs.evolve(word.question(), agent=self._agent)
        try:
            with scope:
                answer = DenyCall(NO_USER) if self._prompter is None else await self._prompter.ask(question)
                self._send(PromptAnswered.of(word.call, answer))
            if scope.cancelled_caught and self._approvals is not None:
                await self._approvals.withdraw_prompt(question)
        finally:
            del self._questions[word.call]

    async def _spawn(self, word: Spawn) -> None:
        try:
            spawned = await self._spawner.spawn(word.request())
        except SpawnRefused as exc:
            self._send(SpawnFailed(call=word.call, reason=exc.reason))
        else:
            self._send(SpawnStarted.of(word.call, spawned))

    async def _await_idle(self, word: AwaitIdle, scope: trio.CancelScope) -> None:
        with scope:
            await self._spawner.wait_until_idle()
            self._send(ChildrenIdle(call=word.call))

    async def _request_shutdown(self, word: RequestShutdown) -> None:
        try:
            await self._spawner.request_shutdown(word.envelope())
        except (SpawnRefused, EnvelopeCorrupt) as exc:
            reason = exc.reason if isinstance(exc, SpawnRefused) else str(exc)
            self._send(ShutdownForwarded(call=word.call, refusal=reason))
        else:
            self._send(ShutdownForwarded(call=word.call))

    async def _stop_task(self, word: StopTask) -> None:
        try:
            await self._spawner.stop(word.name)
        except SpawnRefused as exc:
            self._send(TaskStopped(call=word.call, refusal=exc.reason))
        else:
            self._send(TaskStopped(call=word.call))
