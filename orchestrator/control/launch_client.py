"""Launch client of a root: starts it, sends it commands and answers its prompts."""

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
from coterie.orchestrator.control.launch_protocol import (
    ClientMessage,
    Detach,
    RootMessage,
    SessionEnded,
    SessionOpened,
    root_message_decoder,
)
from coterie.orchestrator.processes.child_process import ChildProcess, start_module
from coterie.orchestrator.session.session_request import SessionRequest
from coterie.process_identity import ProcessIdentity

ROOT_MODULE_NAME = "coterie.orchestrator.root"
EXIT_PATIENCE = 20.0
"""Seconds in which a root that is told to end has ended, or says how long it needs to stop its agents."""


@attrs.define(eq=False)
class RootClient:
    """The client's end of the connection to a root that it launched."""

    _channel: RequestChannel[RootMessage]
    is_detached: bool = attrs.field(default=False, init=False)
    """Whether it goes on when nobody looks any more."""

    def send(self, message: ClientMessage) -> None:
        """Send *message* to the root. Raises `ControlLost`."""
        self._channel.send(message)

    async def receive(self) -> RootMessage | ServedRequest[RootMessage] | None:
        """Return the next message or request of the root; None when it has ended. Raises `ControlLost`."""
        return await self._channel.receive()

    def drop_requests(self) -> None:
        """Cancel the requests of the root that are not answered: nobody waits for the answers."""
        self._channel.close()

    def detach(self) -> None:
        """Let the root go on alone. Raises `ControlLost`."""
        self.send(Detach())
        self.is_detached = True


@asynccontextmanager
async def open_root_client(assignment: SessionRequest) -> AsyncIterator[RootClient]:
    """Start a root for *assignment* and talk to it until the block ends.

    It lives in a session of its own: no terminal reaches it. Unless it was left, the end of the block, cancelled or
    not, makes it stop its agents, and waits for its own end; it is killed if that takes too long. Enter it on the main
    thread. Raises `OSError`.
    """
    await _reap_detached()
    near, far = socket.socketpair()
    with far, os.fdopen(os.memfd_create("assignment"), "wb") as file:
        file.write(assignment.to_bytes())
        file.flush()
        file.seek(0)
        passed = [far.fileno(), file.fileno()]
        process = start_module(ROOT_MODULE_NAME, [str(number) for number in passed], passed=passed, environment=None)
    host: RootClient | None = None
    try:
        async with open_channel(trio.SocketStream(trio.socket.from_stdlib_socket(near)), root_message_decoder) as line:
            host = RootClient(RequestChannel(line))
            yield host
    finally:
        if host is not None and host.is_detached:
            _DETACHED.append(process)
        else:
            await _wait_ended(process)


_DETACHED: list[ChildProcess] = []
"""Roots that go on alone. Nobody waits for them: those that have ended are reaped when another is started."""


async def _reap_detached() -> None:
    for child in [child for child in _DETACHED if child.has_ended()]:
        _DETACHED.remove(child)
        with trio.CancelScope(shield=True):  # it has ended: there is nothing to wait for
            await child.wait()


async def _wait_ended(process: ChildProcess) -> None:
    """Reap a root that was told to end by the end of its connection; kill it if it hangs. Shielded."""
    with trio.CancelScope(shield=True):
        root = ProcessIdentity.find(process.pid)
        if root is not None and not await RootExit(root=root, patience=EXIT_PATIENCE).wait(process.wait_ended):
            process.send_signal(signal.SIGKILL)  # its cleanup daemon ends what it leaves
        with trio.move_on_after(EXIT_PATIENCE):
            await process.wait()


FinalMessage = SessionEnded | RunFailed
"""How a root takes leave."""
PromptHandler = Callable[[Question], Awaitable[Answer]]
"""Answers a question for permission: `AllowOnce`, `AllowForSession` or `DenyCall`."""


@attrs.define(eq=False)
class RootEvents:
    """Receives from one root, and answers its prompts, one at a time."""

    _host: RootClient
    _on_question: PromptHandler | None
    """None where the root was told that nobody can be asked."""
    _opened: Callable[[str], None] = lambda _session: None
    """Told which session it is, if that is not known yet."""
    _asking: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def run(self, nursery: trio.Nursery) -> FinalMessage | None:
        """Return the root's last message; None if it ends without one. Prompts are answered in *nursery*.

        Those that are open by then are dropped: nobody waits for the answers.
        """
        try:
            with suppress(ControlLost):
                while (received := await self._host.receive()) is not None:
                    match received:
                        case SessionEnded() | RunFailed():
                            return received
                        case SessionOpened():
                            self._opened(received.session)
                        case ServedRequest():
                            nursery.start_soon(self._answer, received)
            return None
        finally:
            self._host.drop_requests()

    async def _answer(self, served: ServedRequest[RootMessage]) -> None:
        with suppress(ControlLost):
            await served.answer(self._ask)

    async def _ask(self, request: RootMessage) -> PromptAnswered:
        assert isinstance(request, PromptUser), "the root makes no other request"
        assert self._on_question is not None, "the root was told that somebody can be asked"
        async with self._asking:
            return PromptAnswered.of(await self._on_question(request.question()))
