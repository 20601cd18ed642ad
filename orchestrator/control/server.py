"""Server side of the control socket: answers requests of the user, and refuses those of agents' processes."""

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import trio

from coterie.agents.root_link.messages import RunFailed
from coterie.errors import AgentError
from coterie.framing import PeerInvalid, read_frame, write_frame
from coterie.orchestrator.control.requests import (
    ControlAnswer,
    ControlRequest,
    ControlResponse,
    SendMail,
    peer_pid,
    request_decoder,
)
from coterie.process_identity import ancestors

MAX_REQUESTS = 16
"""Maximum number of concurrent requests; others wait."""
REQUEST_TIMEOUT = 5.0
"""Seconds in which a client must send its request after it has connected."""

RequestHandler = Callable[[ControlRequest], Awaitable[ControlAnswer]]
"""Function that carries out a control request and returns the answer. Raises `AgentError` if the request fails."""


@asynccontextmanager
async def open_listener(address: str) -> AsyncIterator[trio.SocketListener]:
    """Listen at *address* until the block ends. Clients are served by `open_control_server`. Raises `OSError`."""
    with trio.socket.socket(trio.socket.AF_UNIX) as sock:
        await sock.bind(address)
        sock.listen(MAX_REQUESTS)
        yield trio.SocketListener(sock)


@asynccontextmanager
async def open_control_server(listener: trio.SocketListener, serve: RequestHandler) -> AsyncIterator[None]:
    """Answer requests on *listener* with *serve* until the block ends; refuse those of agents and of other users."""
    slots = trio.Semaphore(MAX_REQUESTS)

    async def receive(stream: trio.SocketStream) -> None:
        async with stream, slots:
            with contextlib.suppress(trio.BrokenResourceError, OSError):  # the client has disconnected
                await write_frame(stream, msgspec.json.encode(await _respond(stream, serve)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, receive, [listener])
        yield
        nursery.cancel_scope.cancel()


async def _respond(stream: trio.SocketStream, serve: RequestHandler) -> ControlResponse:
    if (peer := peer_pid(stream)) is None:
        return RunFailed(reason="only the user who runs the session can send requests to it", is_for_user=True)
    # A shell of an agent is not the user. Checked before the first await, because the peer could end and its pid
    # could be reused.
    is_agent = is_descendant(peer, os.getpid())
    try:
        with trio.fail_after(REQUEST_TIMEOUT):
            frame = await read_frame(stream)
        request = request_decoder.decode(frame or b"")
        if is_agent:
            hint = "; agents write to each other with SendMessage" if isinstance(request, SendMail) else ""
            reason = f"only the user can send this request, not an agent{hint}"
            return RunFailed(reason=reason, is_for_user=True)
        return await serve(request)
    except (AgentError, PeerInvalid, msgspec.DecodeError, trio.TooSlowError) as exc:
        return RunFailed(reason=str(exc) or "the request was not received in time", is_for_user=True)


def is_descendant(pid: int, ancestor: int) -> bool:
    """True if *pid* descends from *ancestor*, or if that is unknown. Orphans count if *ancestor* is a subreaper."""
    try:
        return any(each == ancestor for each in ancestors(pid) if each > 1)
    except ProcessLookupError:
        return True  # a process between them has ended, so the ancestor is unknown
