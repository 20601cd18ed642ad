"""Requests with replies and cancellation, on a message channel. Both ends use this code, and both may send requests."""

import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from typing import Any, Generic, get_args

import attrs
import msgspec
import trio

from coterie.agents.errors import BudgetSpent, ControlLost
from coterie.agents.root_link.channel import MessageChannel
from coterie.agents.root_link.spawn_request import SpawnRefused
from coterie.agents.root_link.wire_format import Body, Frame, RemoteError, Reply, WireMessage, WireRequest
from coterie.framing import FRAME_LIMIT

PEER_GONE = "the other process has ended; root.log of the session shows if it crashed"
REMOTE_ERRORS: dict[str, type[BudgetSpent | SpawnRefused]] = {
    "BudgetSpent": BudgetSpent,
    "SpawnRefused": SpawnRefused,
}
"""Errors, by class name, with which a handler may refuse a request. Any other error is a bug in the handler."""


@attrs.define(eq=False)
class _PendingRequest:
    reply: Frame[Any] | None = None
    """Frame with the reply; None until the reply arrives, and also when the connection is lost."""
    is_over: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False)
class ServedRequest(Generic[Body]):
    """Request that the process at the other end has sent. The receiver must call `answer`, which replies to it."""

    request: Body
    _number: int
    _channel: MessageChannel[Frame[Body]]
    _serving: "dict[int, ServedRequest[Body]]"
    """All received requests of the channel that are not answered yet, by number, including this one."""
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _is_withdrawn: bool = attrs.field(default=False, init=False)

    async def answer(
        self,
        handle: Callable[[Body], Awaitable[object]],
        on_withdrawn: Callable[[Body], Awaitable[None]] | None = None,
    ) -> None:
        """Call *handle* with the request, and reply with its result, or with its error if that is in `REMOTE_ERRORS`.

        If the requester cancels, *handle* is cancelled, no reply is sent, and *on_withdrawn* is called. Raises
        `ControlLost` if the reply cannot be sent.
        """
        try:
            with self._scope:
                try:
                    reply = Frame[Body](reply_to=self._number, result=_encode(await handle(self.request)))
                except tuple(REMOTE_ERRORS.values()) as exc:
                    error = RemoteError(kind=type(exc).__name__, fields=_encode(exc))
                    reply = Frame[Body](reply_to=self._number, error=error)
                self._channel.send(reply)
            if self._is_withdrawn and self._scope.cancelled_caught and on_withdrawn is not None:
                await on_withdrawn(self.request)
        finally:
            del self._serving[self._number]

    def cancel(self, *, is_withdrawn: bool) -> None:
        """Cancel the handler. *is_withdrawn* is True if the requester cancelled, False if the connection is lost."""
        self._is_withdrawn = is_withdrawn
        self._scope.cancel()


@attrs.define(eq=False)
class RequestChannel(Generic[Body]):
    """One end of a channel on which both ends send messages, which need no reply, and requests, which get one.

    One task calls `serve` or `receive`; every task may send. *Body* is the union of the types that the peer sends.
    """

    _channel: MessageChannel[Frame[Body]]
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _pending: dict[int, _PendingRequest] = attrs.field(factory=dict, init=False)
    _serving: dict[int, ServedRequest[Body]] = attrs.field(factory=dict, init=False)
    is_closed: bool = attrs.field(default=False, init=False)
    """True after `close`: no more replies can arrive, so each request fails with `ControlLost`."""

    def send(self, message: WireMessage) -> None:
        """Queue *message*, which gets no reply. Raises `ControlLost` if the peer has gone, and `FrameTooLarge`."""
        self._channel.send(Frame(body=message))

    async def request(self, message: WireRequest[Reply], limit: int = FRAME_LIMIT) -> Reply:
        """Send the request *message* of at most *limit* bytes, wait for the reply and return it.

        Cancelling this call also cancels the handler at the other end, unless the type has `runs_to_end`; a late reply
        is ignored. Raises `ControlLost` if the connection is lost, `FrameTooLarge`, and the error of `REMOTE_ERRORS`
        with which the handler refused the request.
        """
        if self.is_closed:
            raise ControlLost(PEER_GONE)
        number, pending = next(self._numbers), _PendingRequest()
        self._pending[number] = pending
        try:
            self._channel.send(Frame(id=number, body=message), limit)
            await pending.is_over.wait()
        except trio.Cancelled:
            if not message.runs_to_end:
                # The task that receives reports the lost connection.
                with contextlib.suppress(ControlLost):
                    self._channel.send(Frame(cancel=number))
            raise
        finally:
            del self._pending[number]
        if pending.reply is None:
            raise ControlLost(PEER_GONE)
        return _decode_reply(type(message), pending.reply)

    async def serve(
        self,
        nursery: trio.Nursery,
        on_message: Callable[[Body], Awaitable[None]],
        on_request: Callable[[Body], Awaitable[object]],
        on_withdrawn: Callable[[Body], Awaitable[None]] | None = None,
    ) -> None:
        """Receive messages and requests of the other end, and handle them, until the other end closes the channel.

        *on_message* handles a message; the next frame is read after it returns. A task in *nursery* answers each
        request with *on_request* and *on_withdrawn*, see `ServedRequest.answer`. After the return the caller cancels
        *nursery*, to cancel unanswered requests without *on_withdrawn*. Raises `ControlLost` for invalid data.
        """
        while (received := await self.receive()) is not None:
            if isinstance(received, ServedRequest):
                nursery.start_soon(received.answer, on_request, on_withdrawn)
            else:
                await on_message(received)

    async def receive(self) -> Body | ServedRequest[Body] | None:
        """Wait for the next message or request; None if the other end has closed the channel. Raises `ControlLost`.

        Meanwhile, received replies end the waiting `request` calls, and received cancellations cancel handlers.
        """
        while (frame := await self._channel.receive()) is not None:
            if frame.reply_to is not None:
                if (pending := self._pending.get(frame.reply_to)) is not None:  # The request may have been cancelled.
                    pending.reply = frame
                    pending.is_over.set()
            elif frame.cancel is not None:
                if (served := self._serving.get(frame.cancel)) is not None:  # The reply may have been sent already.
                    served.cancel(is_withdrawn=True)
            elif frame.body is None or isinstance(frame.body, WireRequest) != (frame.id is not None):
                raise ControlLost("the other process sent neither message nor request; use one version of Coterie")
            elif frame.id is not None:
                served = self._serving[frame.id] = ServedRequest(frame.body, frame.id, self._channel, self._serving)
                return served
            else:
                return frame.body
        return None

    def close(self) -> None:
        """Make all pending and later requests raise `ControlLost`, and cancel the handlers of received requests."""
        self.is_closed = True
        for pending in self._pending.values():
            pending.is_over.set()
        for served in self._serving.values():
            served.cancel(is_withdrawn=False)


def _encode(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def _decode_reply(kind: type[WireRequest[Reply]], frame: Frame[Any]) -> Reply:
    """Return the result in *frame*, a reply to a *kind* request, or raise its error; `ControlLost` for invalid data."""
    try:
        if frame.error is None:
            decoder: msgspec.json.Decoder[Reply] = _reply_decoder(kind)
            return decoder.decode(frame.result)
        error = msgspec.json.decode(frame.error.fields, type=REMOTE_ERRORS[frame.error.kind])
    except (KeyError, msgspec.DecodeError) as exc:
        raise ControlLost(f"invalid reply to {kind.__name__} request: {exc}; use one version of Coterie") from exc
    # Constructed again, because a decoded exception has no `args`.
    raise type(error)(**attrs.asdict(error, recurse=False))


@cache
def _reply_decoder(kind: type[WireRequest[Reply]]) -> msgspec.json.Decoder[Reply]:
    """Return the JSON decoder of replies to the request class *kind*; their type is the parameter of `WireRequest`."""
    [reply] = get_args(kind.__orig_bases__[0])  # type: ignore[attr-defined]  # set on each subclass of a generic class
    return msgspec.json.Decoder(reply)
