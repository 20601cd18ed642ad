"""Server side of the control socket: serves the user's shells and refuses agents."""

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import attrs
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
"""Requests that are served at the same time; others wait."""
REQUEST_TIMEOUT = 5.0
"""Seconds in which whoever connects has said what it wants."""

RequestHandler = Callable[[ControlRequest], Awaitable[ControlAnswer]]
"""Does what is asked. Raises `AgentError` if that cannot be done."""


@asynccontextmanager
async def open_listener(address: str) -> AsyncIterator[trio.SocketListener]:
    """Let whoever comes to *address* wait until `open_control_server`; when the block ends they are sent away.

    Raises `OSError`.
    """
    with trio.socket.socket(trio.socket.AF_UNIX) as sock:
        await sock.bind(address)
        sock.listen(MAX_REQUESTS)
        yield trio.SocketListener(sock)


@asynccontextmanager
async def open_control_server(door: trio.SocketListener, serve: RequestHandler) -> AsyncIterator[None]:
    """Take requests at *door* until the block ends, and close it."""
    reception = _ControlServer(serve)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, reception.receive, [door])
        yield
        nursery.cancel_scope.cancel()


@attrs.define(eq=False)
class _ControlServer:
    serve: RequestHandler
    slots: trio.Semaphore = attrs.field(factory=lambda: trio.Semaphore(MAX_REQUESTS))

    async def receive(self, stream: trio.SocketStream) -> None:
        """One request and its response. Whoever has gone is not told."""
        async with stream, self.slots:
            with contextlib.suppress(trio.BrokenResourceError, OSError):
                await write_frame(stream, msgspec.json.encode(await self._respond(stream)))

    async def _respond(self, stream: trio.SocketStream) -> ControlResponse:
        if (peer := peer_pid(stream)) is None:
            return RunFailed(reason="only the user can ask for this", is_for_user=True)
        # A message is input, never consent: an agent's shell is not the user, whatever it says. Known before anything
        # is waited for: meanwhile the process could end, and its number become another's.
        is_agent = is_descendant(peer, os.getpid())
        try:
            with trio.fail_after(REQUEST_TIMEOUT):
                frame = await read_frame(stream)
            request = request_decoder.decode(frame or b"")
            if is_agent:
                return RunFailed(reason=_agent_refusal(request), is_for_user=True)
            return await self.serve(request)
        except (AgentError, PeerInvalid, msgspec.DecodeError, trio.TooSlowError) as exc:
            return RunFailed(reason=str(exc) or "nothing was asked for", is_for_user=True)


def _agent_refusal(request: ControlRequest) -> str:
    """What an agent is told that asks for the user."""
    hint = "; agents write to each other with SendMessage" if isinstance(request, SendMail) else ""
    return f"only the user can ask for this, and no agent{hint}"


def is_descendant(pid: int, ancestor: int) -> bool:
    """Whether the process *pid* was started, at whatever distance, by *ancestor*, which adopts orphans."""
    try:
        return any(each == ancestor for each in ancestors(pid) if each > 1)
    except ProcessLookupError:
        return True  # one of them has ended: nobody can say whose it was
