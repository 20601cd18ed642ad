"""Services of the root as an agent uses them: gateway, spawner, prompts, approvals and mail authority."""

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import attrs
import msgspec
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.gateway import Permit
from coterie.agents.loop.model.usage import Usage
from coterie.agents.permissions.plan_approval import PlanDecision
from coterie.agents.permissions.types import Answer, DenyCall, Question
from coterie.agents.root_link.approval_messages import (
    DecidePlan,
    PlanDecided,
    PlanReviewed,
    PromptAnswered,
    PromptUser,
    SubmitPlan,
    WithdrawPlan,
    WithdrawPrompt,
)
from coterie.agents.root_link.channel import PendingRequests
from coterie.agents.root_link.message import WireMessage
from coterie.agents.root_link.messages import (
    AdmitCall,
    AgentMessage,
    AwaitIdle,
    CallAbandoned,
    CallAdmitted,
    CallRefused,
    CallUsed,
    CallVoided,
    ChildrenIdle,
    RateLimited,
    ReplyBegan,
    RequestShutdown,
    ShutdownForwarded,
    Spawn,
    SpawnFailed,
    SpawnStarted,
    StopTask,
    TaskStopped,
)
from coterie.agents.root_link.spawn_request import Spawned, SpawnRefused, SpawnRequest
from coterie.framing import FRAME_LIMIT
from coterie.mailbox.contract import Receipt
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import NotAllowed
from coterie.mailbox.message_bodies import BODIES, PlanApprovalResponse, ShutdownRequest


@attrs.define(eq=False)
class RemoteApprover:
    """A `PlanApprover`. Whoever reads the line passes the root's answers to `handle`."""

    _plans: PendingRequests[PlanReviewed]

    @classmethod
    def over(cls, say: Callable[[WireMessage], None]) -> "RemoteApprover":
        """One that submits by *say*."""
        return cls(PendingRequests(say))

    async def submit(self, plan: str, files: Sequence[str]) -> PlanDecision:
        """As `PlanApprover.submit`. Raises `ControlLost`."""

        def word(call: int) -> SubmitPlan:
            return SubmitPlan(call=call, plan=plan, files=tuple(files))

        judged = await self._plans.request(word, lambda call: WithdrawPlan(call=call))
        return PlanDecision(approve=judged.approve, by=judged.by, feedback=judged.feedback)

    def handle(self, answer: PlanReviewed) -> None:
        """Let whoever waits go on."""
        self._plans.resolve(answer)


NO_USER = "Nobody is there any more who could be asked."


@attrs.define(eq=False)
class RemotePrompter:
    """A `UserPrompter`. Whoever reads the line passes the answers to `handle`. Several may ask at once."""

    _questions: PendingRequests[PromptAnswered]
    _is_there: bool = attrs.field(default=True, init=False)

    @classmethod
    def over(cls, say: Callable[[WireMessage], None]) -> "RemotePrompter":
        """One that asks by *say*."""
        return cls(PendingRequests(say))

    async def ask(self, question: Question) -> Answer:
        """As `UserPrompter.ask`. Cancellation takes the question back. Raises `ControlLost`."""
        if not self._is_there:
            return DenyCall(NO_USER)
        word = partial(PromptUser.of, question=question)
        return (await self._questions.request(word, lambda number: WithdrawPrompt(call=number))).answer()

    def handle(self, answer: PromptAnswered) -> None:
        """Let whoever asked go on."""
        self._questions.resolve(answer)

    def leave(self) -> None:
        """Nobody answers any more: what was asked, and what will be, is refused."""
        self._is_there = False
        for number in self._questions.numbers():
            self.handle(PromptAnswered.of(number, DenyCall(NO_USER)))


SpawnerReply = SpawnStarted | SpawnFailed | TaskStopped | ShutdownForwarded | ChildrenIdle

LONGEST = FRAME_LIMIT // 2
"""Bytes of a request: what it becomes on its way must fit into a frame as well."""


@attrs.frozen
class RemoteSpawner:
    """A `Spawner`. Whoever reads the line passes the root's answers to `handle`."""

    _questions: PendingRequests[SpawnerReply]

    @classmethod
    def over(cls, say: Callable[[WireMessage], None]) -> "RemoteSpawner":
        """One that asks by *say*."""
        return cls(PendingRequests(say))

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """As `Spawner.spawn`. Cancelled, the agent is started all the same, and its report comes as mail.

        Raises `ControlLost` too.
        """
        if len(msgspec.json.encode(Spawn.of(0, request))) > LONGEST:
            raise SpawnRefused("The task is too long to be told; write it into a file, and tell the agent which.")
        answer = await self._questions.request(partial(Spawn.of, request=request))
        if isinstance(answer, SpawnFailed):
            raise SpawnRefused(answer.reason)
        assert isinstance(answer, SpawnStarted)
        return answer.spawned()

    async def stop(self, name: str) -> None:
        """As `Spawner.stop`. Raises `ControlLost` too."""
        answer = await self._questions.request(lambda call: StopTask(call=call, name=name))
        assert isinstance(answer, TaskStopped)
        if answer.refusal is not None:
            raise SpawnRefused(answer.refusal)

    async def request_shutdown(self, request: Envelope) -> None:
        """As `Spawner.request_shutdown`. Raises `ControlLost` too."""
        answer = await self._questions.request(lambda call: RequestShutdown.of(call, request))
        assert isinstance(answer, ShutdownForwarded)
        if answer.refusal is not None:
            raise SpawnRefused(answer.refusal)

    async def wait_until_idle(self) -> None:
        """As `Spawner.wait_until_idle`. Raises `ControlLost` too."""
        await self._questions.request(lambda call: AwaitIdle(call=call))

    def handle(self, answer: SpawnerReply) -> None:
        """Let whoever asked go on."""
        self._questions.resolve(answer)


@attrs.define(eq=False)
class RemoteMailAuthority:
    """An `AuthorityPort`. Whoever reads the line passes the root's answers to `handle`."""

    _decisions: PendingRequests[PlanDecided]
    _spawner: RemoteSpawner

    @classmethod
    def over(cls, say: Callable[[WireMessage], None], spawner: RemoteSpawner) -> "RemoteMailAuthority":
        """One that speaks by *say*; who starts agents by *spawner* asks them to end by it."""
        return cls(PendingRequests(say), spawner)

    async def send(self, envelope: Envelope) -> Receipt:
        """As `AuthorityPort.send`. Raises `ControlLost` too."""
        match BODIES[envelope.kind].from_body(envelope.body):
            case PlanApprovalResponse() as response:
                refusal = await self._decide(envelope, response)
            case ShutdownRequest():
                refusal = await self._ask_to_end(envelope)
            case _:
                refusal = "the root takes no such message"
        if refusal is not None:
            sender, recipient = envelope.sender.name, envelope.recipient.name
            raise NotAllowed(sender=sender, recipient=recipient, kind=envelope.kind, reason=refusal)
        return Receipt(id=envelope.id, recipient=envelope.recipient.name, transport="control", stored=envelope.created)

    async def _decide(self, envelope: Envelope, response: PlanApprovalResponse) -> str | None:
        """Why the answer does not count; None if it does."""
        assert envelope.in_reply_to is not None, "checked before it is sent"
        request, asker = envelope.in_reply_to, envelope.recipient.name

        def word(call: int) -> DecidePlan:
            return DecidePlan(call=call, id=request, approve=response.approve, feedback=response.feedback, asker=asker)

        return (await self._decisions.request(word)).refusal

    async def _ask_to_end(self, envelope: Envelope) -> str | None:
        try:
            await self._spawner.request_shutdown(envelope)
        except SpawnRefused as exc:
            return exc.reason
        return None

    def handle(self, answer: PlanDecided) -> None:
        """Let whoever waits go on."""
        self._decisions.resolve(answer)


@attrs.define(eq=False)
class _PendingAdmission:
    """A question that the root has not answered yet."""

    answer: CallAdmitted | CallRefused | None = None
    is_answered: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False)
class RemotePermit:
    """The right to one call; the root hears how it goes."""

    _call: int
    _say: Callable[[AgentMessage], None]

    def begin(self) -> None:
        """As `Permit.begin`."""
        self._say(ReplyBegan(call=self._call))

    def settle(self, usage: Usage, *, is_whole: bool = True) -> None:
        """As `Permit.settle`."""
        self._say(CallUsed(call=self._call, usage=usage, is_whole=is_whole))

    def void(self) -> None:
        """As `Permit.void`."""
        self._say(CallVoided(call=self._call))


@attrs.define(eq=False)
class RemoteGateway:
    """A `Gateway`. Whoever reads the line passes the root's answers to `handle`. Everything raises `ControlLost`."""

    _say: Callable[[AgentMessage], None]
    _calls: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _open: dict[int, _PendingAdmission] = attrs.field(factory=dict, init=False)

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        """As `Gateway.admit`. Cancellation while waiting takes the question back."""
        call, admission = next(self._calls), _PendingAdmission()
        self._open[call] = admission
        self._say(AdmitCall.of(call, intent))
        try:
            await admission.is_answered.wait()
            if isinstance(admission.answer, CallRefused):
                raise admission.answer.error()
            yield RemotePermit(call, self._say)
        finally:
            del self._open[call]
            # Whoever listens on the line ends the agent with this error; it must not take the place of another one.
            with contextlib.suppress(ControlLost):
                self._say(CallAbandoned(call=call))

    def cool_down(self, seconds: float) -> None:
        """As `Gateway.cool_down`, for the whole session."""
        self._say(RateLimited(seconds=seconds))

    def handle(self, answer: CallAdmitted | CallRefused) -> None:
        """Let the call go on that *answer* is about; one that was taken back meanwhile needs none."""
        if (admission := self._open.get(answer.call)) is not None:
            admission.answer = answer
            admission.is_answered.set()
