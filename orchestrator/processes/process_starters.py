"""Process starters: one forks children from a zygote (a process with all imports done), one starts new interpreters."""

import array
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager

import attrs
import trio

from coterie.orchestrator.processes.child_process import CHILDREN, ChildProcess, start_module
from coterie.orchestrator.processes.fork_handshake import (
    COUNT_SIZE,
    REPORT_LIMIT,
    ChildReport,
    PendingChild,
    StartTimeout,
    open_descriptor_channel,
)
from coterie.orchestrator.processes.linux import become_subreaper
from coterie.orchestrator.processes.process_start import ProcessStart, StartFailed, translate_start_errors

AGENT_PRELOADS = (
    "coterie.agents.runtime.agent_main",
    "coterie.agents.loop.pipeline",
    "coterie.agents.runtime.setup.built_in_tools",
    # Modules that the SDK imports at its first request.
    "httpcore2",
    "truststore",
    "anyio._backends._trio",
    "encodings.idna",
    "coterie.agents.loop.model.client_warmup:warm_up_client",
)
"""Modules that the zygote imports and functions that it calls, so that forked agents need no time for them."""

MAX_PENDING = 32
"""Maximum number of concurrent starts, because the kernel limits the file descriptors that a user has in transit."""
ZYGOTE_EXIT_TIMEOUT = 2.0
"""Seconds that a zygote has to exit after its socket is closed, before it is killed."""


@attrs.define(eq=False)
class ZygoteHandle:
    """Handle of a running zygote, the process that has imported all modules and forks a child for each request."""

    process: ChildProcess
    requests: trio.socket.SocketType

    async def start(
        self, start: ProcessStart, descriptors: Sequence[int], stdout: int | None, stderr: int | None
    ) -> ChildProcess:
        """Start a child like `ProcessStarter.start`. Also raises `StartTimeout` if the zygote does not fork one."""
        with (
            translate_start_errors(),
            CHILDREN.start_pending(),
            open_descriptor_channel(start, descriptors, stdout, stderr) as channel,
        ):
            numbers = array.array("i", channel.passed.numbers)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)]
            try:
                await self.requests.sendmsg([len(numbers).to_bytes(COUNT_SIZE)], rights)
            except (BrokenPipeError, ConnectionResetError) as exc:
                raise StartTimeout from exc
            channel.release()
            return await PendingChild(channel.reports, maker=self.process).ready()

    async def end(self) -> None:
        """Close the request socket, which ends the zygote; return once it is reaped. It is killed after a timeout."""
        self.requests.close()
        with trio.CancelScope(shield=True):
            await self.process.wait_or_kill(ZYGOTE_EXIT_TIMEOUT)


@attrs.define(eq=False)
class ZygoteStarter:
    """Starter that forks children from a zygote; tasks may use it concurrently. `open_zygote_starter` creates it."""

    _names: Sequence[str]
    _environment: Mapping[str, str] | None
    _zygote: ZygoteHandle | None = None
    _changing: trio.Lock = attrs.field(factory=trio.Lock)
    _pending: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(MAX_PENDING))

    @property
    def zygote(self) -> int | None:
        """Process id of the zygote, the process from which children are forked; None if none is started."""
        return None if self._zygote is None else self._zygote.process.pid

    async def start(
        self,
        start: ProcessStart,
        descriptors: Sequence[int] = (),
        *,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> ChildProcess:
        """Start a child like `ProcessStarter.start`. If the zygote does not fork one, retry once with a new zygote."""
        async with self._pending:
            zygote = await self.ensure_zygote()
            try:
                return await zygote.start(start, descriptors, stdout, stderr)
            except StartTimeout:
                await self._retire(zygote)
            try:
                return await (await self.ensure_zygote()).start(start, descriptors, stdout, stderr)
            except StartTimeout as exc:
                raise StartFailed("the zygote, from which agents are forked, ended twice; try again") from exc

    async def ensure_zygote(self) -> ZygoteHandle:
        """Return the running zygote. If there is none, start one and wait until it is ready. Raises `StartFailed`."""
        async with self._changing:
            if self._zygote is None:
                self._zygote = await _open_zygote(self._names, self._environment)
            return self._zygote

    async def end_zygote(self) -> None:
        """End the zygote if it is running. The children that it has forked keep running."""
        if self._zygote is not None:
            await self._retire(self._zygote)

    async def _retire(self, zygote: ZygoteHandle) -> None:
        """End a zygote that did not answer. Other starts that wait for this zygote are retried with the next one."""
        with trio.CancelScope(shield=True):
            async with self._changing:
                if self._zygote is zygote:
                    self._zygote = None
                    await zygote.end()


@asynccontextmanager
async def open_zygote_starter(
    names: Sequence[str] = AGENT_PRELOADS, *, environment: Mapping[str, str] | None = None
) -> AsyncIterator[ZygoteStarter]:
    """Open a starter with a zygote (a process from which children are forked) that is ready.

    The zygote imports the modules in *names* and calls the functions named `module:function`. In /proc its children
    show *environment* instead of their own, which matters for searches for stray processes. In the block this process
    adopts orphaned descendants; see `run_reaper`. Enter it on the main thread, and wait for all children before the
    block ends. Raises `StartFailed` if the zygote does not start.
    """
    had_adopted = become_subreaper(yes=True)
    starter = ZygoteStarter(names, environment)
    try:
        await starter.ensure_zygote()
        yield starter
    finally:
        await starter.end_zygote()
        CHILDREN.reap_adopted()
        become_subreaper(yes=had_adopted)


async def _open_zygote(names: Sequence[str], environment: Mapping[str, str] | None) -> ZygoteHandle:
    """Start a zygote and wait until it is ready; end it after an error or a cancellation. Raises `StartFailed`."""
    zygote = _start_zygote(names, environment)
    is_ready = False
    try:
        packet = await zygote.requests.recv(REPORT_LIMIT)
        if not packet:
            raise StartFailed(
                "the zygote, from which agents are forked, ended before it was ready; start the session again",
                status=await zygote.process.wait(),
            )
        report = ChildReport.from_bytes(packet)
        if report.failure is not None:
            raise StartFailed(
                f"the zygote, from which agents are forked, could not import all modules ({report.failure}); "
                "check the installation",
                report.errno,
            )
        is_ready = True
    finally:
        if not is_ready:
            zygote.process.send_signal(signal.SIGKILL)
            await zygote.end()
    return zygote


def _start_zygote(names: Sequence[str], environment: Mapping[str, str] | None) -> ZygoteHandle:
    root_end, zygote_end = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with translate_start_errors(), zygote_end, ExitStack() as undo:
        undo.enter_context(root_end)
        arguments = [str(zygote_end.fileno()), str(os.getpid()), *names]
        module = "coterie.orchestrator.processes.zygote"
        process = start_module(module, arguments, passed=[zygote_end.fileno()], environment=environment)
        undo.pop_all()
    return ZygoteHandle(process, trio.socket.from_stdlib_socket(root_end))


@attrs.frozen
class ExecStarter:
    """Starter that runs a new Python interpreter for each child, without a zygote. Use it on the main thread."""

    async def start(
        self,
        start: ProcessStart,
        descriptors: Sequence[int] = (),
        *,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> ChildProcess:
        """Start a child like `ProcessStarter.start`. In /proc the child shows the environment of *start*."""
        with translate_start_errors(), open_descriptor_channel(start, descriptors, stdout, stderr) as channel:
            numbers = channel.passed.numbers
            child = start_module(
                "coterie.orchestrator.processes.child_main",
                [str(os.getpid()), *map(str, numbers)],
                passed=numbers,
                environment=start.environment,
                stderr=channel.passed.stderr,
            )
            channel.release()
            return await PendingChild(channel.reports, child).ready()
