"""Clients with which an agent uses the services of the root: model calls, spawning, prompts, plans, shutdowns."""

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from coterie.agents.errors import ControlLost, FrameTooLarge
from coterie.agents.loop.model.call_intent import CallIntent
from coterie.agents.loop.model.gateway_protocol import Permit
from coterie.agents.loop.model.usage import Usage
from coterie.agents.permissions.plan_approval import PlanDecision
from coterie.agents.permissions.types import Answer, DenyCall, Question
from coterie.agents.root_link.approval_messages import DecidePlan, PromptUser, SubmitPlan
from coterie.agents.root_link.messages import (
    AdmitCall,
    AgentMessage,
    AwaitIdle,
    CallAbandoned,
    CallUsed,
    CallVoided,
    RateLimited,
    ReplyBegan,
    RequestShutdown,
    Spawn,
    StopTask,
)
from coterie.agents.root_link.request_channel import RequestChannel
from coterie.agents.root_link.spawn_request import Spawned, SpawnRefused, SpawnRequest
from coterie.framing import FRAME_LIMIT
from coterie.mailbox.contract import Receipt
from coterie.mailbox.envelope import Envelope
from coterie.mailbox.errors import NotAllowed
from coterie.mailbox.message_bodies import BODIES, PlanApprovalResponse, ShutdownRequest

NO_USER = "No user can be asked now. Continue with calls that need no permission."


@attrs.define(eq=False)
class RemotePrompter:
    """`UserPrompter` that sends permission prompts to the process at the other end of a channel, also concurrently."""

    _channel: RequestChannel[Any]
    _open: set[trio.CancelScope] = attrs.field(factory=set, init=False)
    _has_left: bool = attrs.field(default=False, init=False)

    async def ask(self, question: Question) -> Answer:
        """Return the user's answer; a denial if none can come. Cancel to withdraw the prompt. Raises `ControlLost`."""
        if self._has_left:
            return DenyCall(NO_USER)
        with trio.CancelScope() as scope:
            self._open.add(scope)
            try:
                return (await self._channel.request(PromptUser.of(question))).answer()
            finally:
                self._open.remove(scope)
        return DenyCall(NO_USER)

    def leave(self) -> None:
        """Answer all waiting and later prompts with a denial, because the user has left."""
        self._has_left = True
        for scope in self._open:
            scope.cancel()


MAX_SPAWN_BYTES = FRAME_LIMIT // 2
"""Maximum bytes of an encoded spawn request; the larger start parameters made from it must fit a frame too."""


@attrs.frozen
class RemoteServices:
    """Client of the root (supervisor) to start and stop agents and submit plans. Any method can raise `ControlLost`."""

    _channel: RequestChannel[Any]

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """Ask the root to start an agent, and return once it runs. Raises `SpawnRefused`.

        If this call is cancelled, the agent is started nevertheless, and reports by mail.
        """
        try:
            return await self._channel.request(Spawn(request=request), MAX_SPAWN_BYTES)
        except FrameTooLarge as exc:
            reason = "No agent was started: the task is too long. Write it to a file, and tell the agent to read it."
            raise SpawnRefused(reason) from exc

    async def stop(self, name: str) -> None:
        """Ask the root to stop *name*, a descendant; return when it has ended. Raises `SpawnRefused`."""
        await self._channel.request(StopTask(name=name))

    async def request_shutdown(self, request: Envelope) -> None:
        """Let the root send *request*, a shutdown request, to its recipient. Raises `SpawnRefused`."""
        await self._channel.request(RequestShutdown.of(request))

    async def wait_until_idle(self) -> None:
        """Wait until the root replies that all descendants of this agent are idle."""
        await self._channel.request(AwaitIdle())

    async def submit(self, plan: str, files: Sequence[str]) -> PlanDecision:
        """Submit *plan*, which will change *files*, and wait without a timeout for the decision."""
        return await self._channel.request(SubmitPlan(plan=plan, files=tuple(files)))

    async def send(self, envelope: Envelope) -> Receipt:
        """Let the root act on *envelope*, a plan decision or shutdown request. Raises `NotAllowed` if rejected."""
        match BODIES[envelope.kind].from_body(envelope.body):
            case PlanApprovalResponse() as response:
                assert envelope.in_reply_to is not None, "checked by the sender"
                decision = DecidePlan(
                    id=envelope.in_reply_to,
                    approve=response.approve,
                    feedback=response.feedback,
                    asker=envelope.recipient.name,
                )
                refusal = (await self._channel.request(decision)).refusal
            case ShutdownRequest():
                refusal = None
                try:
                    await self.request_shutdown(envelope)
                except SpawnRefused as exc:
                    refusal = exc.reason
            case _:
                refusal = "only plan decisions and shutdown requests go through the root; use another kind"
        if refusal is not None:
            sender, recipient = envelope.sender.name, envelope.recipient.name
            raise NotAllowed(sender=sender, recipient=recipient, kind=envelope.kind, reason=refusal)
        return Receipt(id=envelope.id, recipient=envelope.recipient.name, transport="control", stored=envelope.created)


@attrs.define(eq=False)
class RemotePermit:
    """Permit of the root for one model call; its methods report the progress of the call to the root."""

    _number: int
    _send: Callable[[AgentMessage], None]

    def begin(self) -> None:
        """Report to the root that the model has begun to reply."""
        self._send(ReplyBegan(permit=self._number))

    def settle(self, usage: Usage, *, is_whole: bool = True) -> None:
        """Report the tokens used to the root; *is_whole* is False if the reply broke off."""
        self._send(CallUsed(permit=self._number, usage=usage, is_whole=is_whole))

    def void(self) -> None:
        """Report to the root that the call cost nothing: it was not sent, or the API rejected it."""
        self._send(CallVoided(permit=self._number))


@attrs.define(eq=False)
class RemoteGateway:
    """Client of the `Gateway` in the root (supervisor): admits model calls. Any method can raise `ControlLost`."""

    _channel: RequestChannel[Any]
    _permits: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        """Wait until the root permits a model call; the end of the block returns the permit. Raises `BudgetSpent`."""
        number = next(self._permits)
        try:
            await self._channel.request(AdmitCall(permit=number, intent=intent))
            yield RemotePermit(number, self._channel.send)
        finally:
            # Sent in any case, because the permit may have been granted while the request was cancelled. A lost
            # connection is reported by the receiving task and must not replace another error.
            with contextlib.suppress(ControlLost):
                self._channel.send(CallAbandoned(permit=number))

    def cool_down(self, seconds: float) -> None:
        """Ask the root to start no model call of any agent for *seconds*: the API limits the rate or is overloaded."""
        self._channel.send(RateLimited(seconds=seconds))
