"""Client that launches a root (supervisor process): stays connected to it, and answers its permission prompts."""

import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import attrs
import trio

from coterie.agents.errors import ControlLost
from coterie.agents.permissions.types import Answer, Question
from coterie.agents.root_link.approval_messages import PromptAnswered, PromptUser
from coterie.agents.root_link.channel import open_channel
from coterie.agents.root_link.messages import RunFailed
from coterie.agents.root_link.request_channel import RequestChannel, ServedRequest
from coterie.orchestrator.control.client import RootExit
from coterie.orchestrator.control.requests import (
    Detach,
    RootMessage,
    SessionEnded,
    SessionOpened,
    root_message_decoder,
)
from coterie.orchestrator.processes.child_process import ChildProcess, start_module
from coterie.orchestrator.session.session_request import SessionRequest
from coterie.process_identity import ProcessIdentity

EXIT_TIMEOUT = 20.0
"""Seconds in which a root (supervisor process) must exit, or answer how long it needs to stop its agents."""


@attrs.define(eq=False)
class RootClient(RequestChannel[RootMessage]):
    """Client's end of the connection to a root (supervisor) that it launched; it sends `ClientMessage` objects."""

    is_detached: bool = attrs.field(default=False, init=False)
    """True if the root (supervisor process) keeps running without this client."""

    def detach(self) -> None:
        """Tell the root (supervisor process) to continue without this client. Raises `ControlLost` if disconnected."""
        self.send(Detach())
        self.is_detached = True


@asynccontextmanager
async def open_root_client(request: SessionRequest) -> AsyncIterator[RootClient]:
    """Start a root (supervisor process) for *request*, and yield the connection to it until the block ends.

    The root runs in its own terminal session, so Ctrl+C in the terminal does not reach it. The end of the block makes
    the root stop its agents, waits for its exit, and kills it if it hangs. This also holds after a cancellation, but
    not if the client has detached. Enter the block on the main thread. Raises `OSError`.
    """
    for child in [child for child in _DETACHED if child.has_ended()]:
        _DETACHED.remove(child)
        with trio.CancelScope(shield=True):  # returns immediately, because the process has ended
            await child.wait()
    client_end, root_end = socket.socketpair()
    with root_end, os.fdopen(os.memfd_create("request"), "wb") as file:
        file.write(request.to_bytes())
        file.flush()
        file.seek(0)
        passed = [root_end.fileno(), file.fileno()]
        arguments = [str(number) for number in passed]
        process = start_module("coterie.orchestrator.root", arguments, passed=passed, environment=None)
    client: RootClient | None = None
    try:
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(client_end))
        async with open_channel(stream, root_message_decoder) as channel:
            client = RootClient(channel)
            yield client
    finally:
        if client is not None and client.is_detached:
            _DETACHED.append(process)
        else:
            await _wait_ended(process)


_DETACHED: list[ChildProcess] = []
"""Roots (supervisors) that run without their client; ended ones are reaped when this process launches the next one."""


async def _wait_ended(process: ChildProcess) -> None:
    """Wait until the disconnected root (supervisor) exits; kill it if it hangs; reap it. Cancellation has no effect."""
    with trio.CancelScope(shield=True):
        root = ProcessIdentity.find(process.pid)
        if root is not None and not await RootExit(root=root, timeout=EXIT_TIMEOUT).wait(process.wait_ended):
            process.send_signal(signal.SIGKILL)  # its cleanup daemon kills the remaining processes
        with trio.move_on_after(EXIT_TIMEOUT):
            await process.wait()


FinalMessage = SessionEnded | RunFailed
"""Last message of a root (supervisor process) to the client that launched it: the session ended, or it failed."""
PromptHandler = Callable[[Question], Awaitable[Answer]]
"""Callback that answers a permission prompt: `AllowOnce`, `AllowForSession` or `DenyCall`."""


@attrs.define(eq=False)
class RootEvents:
    """Receiver of the messages of a root (supervisor process); a callback answers its permission prompts one by one."""

    _client: RootClient
    _on_question: PromptHandler | None
    """Handler of permission prompts; None if the request for the session says that the user cannot be asked."""
    _opened: Callable[[str], None] = lambda _session: None
    """Callback that gets the session id when the root (supervisor process) has opened the session."""
    _asking: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def run(self, nursery: trio.Nursery) -> FinalMessage | None:
        """Receive messages of the root (supervisor), and return its last one; None if the connection ends without it.

        Prompts are answered in tasks of *nursery*. Answers that are not sent before the last message are discarded.
        """
        try:
            with suppress(ControlLost):
                while (received := await self._client.receive()) is not None:
                    match received:
                        case SessionEnded() | RunFailed():
                            return received
                        case SessionOpened():
                            self._opened(received.session)
                        case ServedRequest():
                            nursery.start_soon(self._answer, received)
            return None
        finally:
            # The root no longer waits for answers.
            self._client.close()

    async def _answer(self, served: ServedRequest[RootMessage]) -> None:
        with suppress(ControlLost):
            await served.answer(self._ask)

    async def _ask(self, request: RootMessage) -> PromptAnswered:
        assert isinstance(request, PromptUser), "the root sends no other request"
        assert self._on_question is not None, "the root sends prompts only if can_ask is set"
        async with self._asking:
            return PromptAnswered.of(await self._on_question(request.question()))
