"""Services of the root as an agent uses them: gateway, spawner, prompts, approvals and mail authority."""

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

NO_USER = "There is no user to ask any longer."


@attrs.define(eq=False)
class RemotePrompter:
    """A `UserPrompter` at the other end of a channel. Several prompts may be open at the same time."""

    _channel: RequestChannel[Any]
    _open: set[trio.CancelScope] = attrs.field(factory=set, init=False)
    _has_left: bool = attrs.field(default=False, init=False)

    async def ask(self, question: Question) -> Answer:
        """Ask the user; as `UserPrompter.ask`. Cancellation withdraws the prompt. Raises `ControlLost`."""
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
        """Deny all open and later prompts, because the user has left."""
        self._has_left = True
        for scope in self._open:
            scope.cancel()


MAX_SPAWN_BYTES = FRAME_LIMIT // 2
"""Maximum size of a spawn request, in bytes: the spec made from it must fit into a frame too."""


@attrs.frozen
class RemoteServices:
    """The `Spawner`, the `PlanApprover` and the `AuthorityPort` of the root. Every method raises `ControlLost` too."""

    _channel: RequestChannel[Any]

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """Spawn an agent; as `Spawner.spawn`.

        After a cancellation the agent is spawned nevertheless and reports by mail.
        """
        try:
            return await self._channel.request(Spawn(request=request), MAX_SPAWN_BYTES)
        except FrameTooLarge as exc:
            reason = "The task is too long for a message; write it into a file, and tell the agent to read the file."
            raise SpawnRefused(reason) from exc

    async def stop(self, name: str) -> None:
        """Stop an agent; as `Spawner.stop`."""
        await self._channel.request(StopTask(name=name))

    async def request_shutdown(self, request: Envelope) -> None:
        """Forward a shutdown request; as `Spawner.request_shutdown`."""
        await self._channel.request(RequestShutdown.of(request))

    async def wait_until_idle(self) -> None:
        """Wait until all descendants are idle; as `Spawner.wait_until_idle`."""
        await self._channel.request(AwaitIdle())

    async def submit(self, plan: str, files: Sequence[str]) -> PlanDecision:
        """Submit *plan*; as `PlanApprover.submit`."""
        return await self._channel.request(SubmitPlan(plan=plan, files=tuple(files)))

    async def send(self, envelope: Envelope) -> Receipt:
        """Send a message with authority; as `AuthorityPort.send`."""
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
                refusal = "the root does not accept this kind of message"
        if refusal is not None:
            sender, recipient = envelope.sender.name, envelope.recipient.name
            raise NotAllowed(sender=sender, recipient=recipient, kind=envelope.kind, reason=refusal)
        return Receipt(id=envelope.id, recipient=envelope.recipient.name, transport="control", stored=envelope.created)


@attrs.define(eq=False)
class RemotePermit:
    """Permit for one call; it reports the progress of the call to the root."""

    _number: int
    _send: Callable[[AgentMessage], None]

    def begin(self) -> None:
        """Report that the reply has begun; as `Permit.begin`."""
        self._send(ReplyBegan(permit=self._number))

    def settle(self, usage: Usage, *, is_whole: bool = True) -> None:
        """Report the usage; as `Permit.settle`."""
        self._send(CallUsed(permit=self._number, usage=usage, is_whole=is_whole))

    def void(self) -> None:
        """Report that the call cost nothing; as `Permit.void`."""
        self._send(CallVoided(permit=self._number))


@attrs.define(eq=False)
class RemoteGateway:
    """The `Gateway` of the root. Every method raises `ControlLost`."""

    _channel: RequestChannel[Any]
    _permits: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        """Wait for admission of a model call; as `Gateway.admit`. Cancellation while waiting withdraws the request."""
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
        """Pause the calls of the whole session for *seconds*; as `Gateway.cool_down`."""
        self._channel.send(RateLimited(seconds=seconds))
