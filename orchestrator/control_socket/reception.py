"""The control socket of a root: its user's shells ask here; what agents have started is turned away."""

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import msgspec
import trio

from coterie.agents.control.words import Unable
from coterie.agents.errors import AgentError
from coterie.mailbox.bridge.frames import PeerInvalid, read_frame, write_frame
from coterie.orchestrator.control_socket.requests import Answer, PostMail, Request, Response, peer_of, requests

AT_ONCE = 16
"""Requests that are served at the same time; others wait."""
PATIENCE = 5.0
"""Seconds in which whoever connects has said what it wants."""

Serve = Callable[[Request], Awaitable[Answer]]
"""Does what is asked. Raises `AgentError` if that cannot be done."""


@asynccontextmanager
async def open_door(address: str) -> AsyncIterator[trio.SocketListener]:
    """Let whoever comes to *address* wait until `open_reception`; when the block ends they are sent away.

    Raises `OSError`.
    """
    with trio.socket.socket(trio.socket.AF_UNIX) as sock:
        await sock.bind(address)
        sock.listen(AT_ONCE)
        yield trio.SocketListener(sock)


@asynccontextmanager
async def open_reception(door: trio.SocketListener, serve: Serve) -> AsyncIterator[None]:
    """Take requests at *door* until the block ends, and close it."""
    reception = _Reception(serve)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, reception.receive, [door])
        yield
        nursery.cancel_scope.cancel()


@attrs.define(eq=False)
class _Reception:
    serve: Serve
    slots: trio.Semaphore = attrs.field(factory=lambda: trio.Semaphore(AT_ONCE))

    async def receive(self, stream: trio.SocketStream) -> None:
        """One request and its response. Whoever has gone is not told."""
        async with stream, self.slots:
            with contextlib.suppress(trio.BrokenResourceError, OSError):
                await write_frame(stream, msgspec.json.encode(await self._respond(stream)))

    async def _respond(self, stream: trio.SocketStream) -> Response:
        if (peer := peer_of(stream)) is None:
            return Unable(reason="only the user can ask for this", is_for_user=True)
        # A message is input, never consent: an agent's shell is not the user, whatever it says. Known before anything
        # is waited for: meanwhile the process could end, and its number become another's.
        is_agent = descends_from(peer, os.getpid())
        try:
            with trio.fail_after(PATIENCE):
                frame = await read_frame(stream)
            request = requests.decode(frame or b"")
            if is_agent:
                return Unable(reason=_refusal_of(request), is_for_user=True)
            return await self.serve(request)
        except (AgentError, PeerInvalid, msgspec.DecodeError, trio.TooSlowError) as exc:
            return Unable(reason=str(exc) or "nothing was asked for", is_for_user=True)


def _refusal_of(request: Request) -> str:
    """What an agent is told that asks for the user."""
    hint = "; agents write to each other with SendMessage" if isinstance(request, PostMail) else ""
    return f"only the user can ask for this, and no agent{hint}"


def descends_from(pid: int, ancestor: int) -> bool:
    """Whether the process *pid* was started, at whatever distance, by *ancestor*, which adopts orphans."""
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            return True  # it has ended: nobody can say whose it was
    return False
