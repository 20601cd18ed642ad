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


@attrs.frozen
class RemoteApprover:
    """The `PlanApprover` of the root."""

    _channel: RequestChannel[Any]

    async def submit(self, plan: str, files: Sequence[str]) -> PlanDecision:
        """As `PlanApprover.submit`. Raises `ControlLost`."""
        return await self._channel.request(SubmitPlan(plan=plan, files=tuple(files)))


NO_USER = "Nobody is there any more who could be asked."


@attrs.define(eq=False)
class RemotePrompter:
    """A `UserPrompter` at the other end of a channel. Several may ask at once."""

    _channel: RequestChannel[Any]
    _open: set[trio.CancelScope] = attrs.field(factory=set, init=False)
    _has_left: bool = attrs.field(default=False, init=False)

    async def ask(self, question: Question) -> Answer:
        """As `UserPrompter.ask`. Cancellation withdraws the prompt. Raises `ControlLost`."""
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
        """Deny all that is asked, now and later: nobody answers any more."""
        self._has_left = True
        for scope in self._open:
            scope.cancel()


MAX_SPAWN_BYTES = FRAME_LIMIT // 2
"""Bytes of a spawn request: the spec that is made of it must fit into a frame as well."""


@attrs.frozen
class RemoteSpawner:
    """The `Spawner` of the root."""

    _channel: RequestChannel[Any]

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """As `Spawner.spawn`. Cancelled, the agent is started all the same, and its report comes as mail.

        Raises `ControlLost` too.
        """
        try:
            return await self._channel.request(Spawn(request=request), MAX_SPAWN_BYTES)
        except FrameTooLarge as exc:
            reason = "The task is too long to be told; write it into a file, and tell the agent which."
            raise SpawnRefused(reason) from exc

    async def stop(self, name: str) -> None:
        """As `Spawner.stop`. Raises `ControlLost` too."""
        await self._channel.request(StopTask(name=name))

    async def request_shutdown(self, request: Envelope) -> None:
        """As `Spawner.request_shutdown`. Raises `ControlLost` too."""
        await self._channel.request(RequestShutdown.of(request))

    async def wait_until_idle(self) -> None:
        """As `Spawner.wait_until_idle`. Raises `ControlLost` too."""
        await self._channel.request(AwaitIdle())


@attrs.frozen
class RemoteMailAuthority:
    """The `AuthorityPort` of the root."""

    _channel: RequestChannel[Any]
    _spawner: RemoteSpawner

    async def send(self, envelope: Envelope) -> Receipt:
        """As `AuthorityPort.send`. Raises `ControlLost` too."""
        match BODIES[envelope.kind].from_body(envelope.body):
            case PlanApprovalResponse() as response:
                refusal = await self._decide(envelope, response)
            case ShutdownRequest():
                refusal = await self._request_shutdown(envelope)
            case _:
                refusal = "the root takes no such message"
        if refusal is not None:
            sender, recipient = envelope.sender.name, envelope.recipient.name
            raise NotAllowed(sender=sender, recipient=recipient, kind=envelope.kind, reason=refusal)
        return Receipt(id=envelope.id, recipient=envelope.recipient.name, transport="control", stored=envelope.created)

    async def _decide(self, envelope: Envelope, response: PlanApprovalResponse) -> str | None:
        """Return why the answer does not count; None if it does."""
        assert envelope.in_reply_to is not None, "checked before it is sent"
        decision = DecidePlan(
            id=envelope.in_reply_to,
            approve=response.approve,
            feedback=response.feedback,
            asker=envelope.recipient.name,
        )
        return (await self._channel.request(decision)).refusal

    async def _request_shutdown(self, envelope: Envelope) -> str | None:
        try:
            await self._spawner.request_shutdown(envelope)
        except SpawnRefused as exc:
            return exc.reason
        return None


@attrs.define(eq=False)
class RemotePermit:
    """The right to one call; the root is told how it goes."""

    _number: int
    _send: Callable[[AgentMessage], None]

    def begin(self) -> None:
        """As `Permit.begin`."""
        self._send(ReplyBegan(permit=self._number))

    def settle(self, usage: Usage, *, is_whole: bool = True) -> None:
        """As `Permit.settle`."""
        self._send(CallUsed(permit=self._number, usage=usage, is_whole=is_whole))

    def void(self) -> None:
        """As `Permit.void`."""
        self._send(CallVoided(permit=self._number))


@attrs.define(eq=False)
class RemoteGateway:
    """The `Gateway` of the root. Everything raises `ControlLost`."""

    _channel: RequestChannel[Any]
    _permits: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    @asynccontextmanager
    async def admit(self, intent: CallIntent) -> AsyncIterator[Permit]:
        """As `Gateway.admit`. Cancellation while waiting withdraws the request."""
        number = next(self._permits)
        try:
            await self._channel.request(AdmitCall(permit=number, intent=intent))
            yield RemotePermit(number, self._channel.send)
        finally:
            # Said in any case: the permit may have been given when the request was cancelled. The task that receives
            # ends the agent when the connection is lost; that must not take the place of another error.
            with contextlib.suppress(ControlLost):
                self._channel.send(CallAbandoned(permit=number))

    def cool_down(self, seconds: float) -> None:
        """As `Gateway.cool_down`, for the whole session."""
        self._channel.send(RateLimited(seconds=seconds))
