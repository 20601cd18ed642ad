"""Process starters: forks from a zygote, or new interpreters."""

import array
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager

import attrs
import trio

from coterie.orchestrator.processes.child_process import ChildProcess, start_module
from coterie.orchestrator.processes.child_registry import CHILDREN
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

ZYGOTE_MODULE = "coterie.orchestrator.processes.zygote"

AGENT_PRELOADS = (
    "coterie.agents.runtime.agent_main",
    "coterie.agents.loop.pipeline",
    "coterie.agents.runtime.setup.built_in_tools",
    # What the SDK imports when its first request is sent.
    "httpcore2",
    "truststore",
    "anyio._backends._trio",
    "encodings.idna",
    "coterie.agents.loop.model.client_warmup:warm_up_client",
)
"""What an agent needs before its first request has left: modules, and functions that keep what they have made."""

MAX_PENDING = 32
"""Starts that are under way at a time; each has descriptors in flight, of which a user may have only so many."""
ZYGOTE_EXIT_TIMEOUT = 2.0
"""Seconds in which a zygote that is told to end does so."""


@attrs.define(eq=False)
class ZygoteHandle:
    """A zygote that takes requests."""

    process: ChildProcess
    requests: trio.socket.SocketType

    async def start(
        self, start: ProcessStart, descriptors: Sequence[int], stdout: int | None, stderr: int | None
    ) -> ChildProcess:
        """As `ProcessStarter.start`; raises `StartTimeout` too, when the zygote, or what it had forked, is gone."""
        with (
            translate_start_errors(),
            CHILDREN.start_pending(),
            open_descriptor_channel(start, descriptors, stdout, stderr) as passage,
        ):
            numbers = array.array("i", passage.passed.numbers)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)]
            try:
                await self.requests.sendmsg([len(numbers).to_bytes(COUNT_SIZE)], rights)
            except (BrokenPipeError, ConnectionResetError) as exc:
                raise StartTimeout from exc
            passage.release()
            return await PendingChild(passage.reports, maker=self.process).ready()

    async def end(self) -> None:
        """Close the socket, at which the zygote ends; wait, kill. Returns once it is reaped; is not cancelled."""
        self.requests.close()
        with trio.CancelScope(shield=True):
            await self.process.wait_or_kill(ZYGOTE_EXIT_TIMEOUT)


@attrs.define(eq=False)
class ZygoteStarter:
    """Starts children by forking a zygote. Made by `open_zygote_starter`; may be used by several tasks at once."""

    _names: Sequence[str]
    _environment: Mapping[str, str] | None
    _zygote: ZygoteHandle | None = None
    _changing: trio.Lock = attrs.field(factory=trio.Lock)
    _under_way: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(MAX_PENDING))

    @property
    def zygote(self) -> int | None:
        """The process that children are forked from; None while there is none."""
        return None if self._zygote is None else self._zygote.process.pid

    async def start(
        self,
        start: ProcessStart,
        descriptors: Sequence[int] = (),
        *,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> ChildProcess:
        """As `ProcessStarter.start`. If the zygote is gone, another is started and asked, once."""
        async with self._under_way:
            zygote = await self.ensure_zygote()
            try:
                return await zygote.start(start, descriptors, stdout, stderr)
            except StartTimeout:
                await self._retire(zygote)
            try:
                return await (await self.ensure_zygote()).start(start, descriptors, stdout, stderr)
            except StartTimeout as exc:
                raise StartFailed("the zygote died, and so did the one that took its place") from exc

    async def ensure_zygote(self) -> ZygoteHandle:
        """The zygote; started, and waited for until it is warm, if there is none. Raises `StartFailed`."""
        async with self._changing:
            if self._zygote is None:
                self._zygote = await _open_zygote(self._names, self._environment)
            return self._zygote

    async def end_zygote(self) -> None:
        """End the zygote, if there is one; the children live on."""
        if self._zygote is not None:
            await self._retire(self._zygote)

    async def _retire(self, zygote: ZygoteHandle) -> None:
        """End a zygote, which may be dead or may only look so: what else it was asked for is asked of the next one."""
        with trio.CancelScope(shield=True):
            async with self._changing:
                if self._zygote is zygote:
                    self._zygote = None
                    await zygote.end()


@asynccontextmanager
async def open_zygote_starter(
    names: Sequence[str] = AGENT_PRELOADS, *, environment: Mapping[str, str] | None = None
) -> AsyncIterator[ZygoteStarter]:
    """A starter whose zygote is warm and lives until the block ends; its children's owners wait for them before that.

    The zygote imports the modules in *names* and calls what is named `module:function`. For /proc, and so for whoever
    looks for strays, *environment* is its children's too, whatever their own says. While the block runs this process
    adopts orphaned descendants: see `run_reaper`. Enter it on the main thread. Raises `StartFailed` if the zygote does
    not come up.
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
    """A zygote that is warm. Cancelled while it gets warm, it is ended."""
    zygote = _start_zygote(names, environment)
    is_warm = False
    try:
        await _wait_until_warm(zygote)
        is_warm = True
    finally:
        if not is_warm:
            zygote.process.send_signal(signal.SIGKILL)
            await zygote.end()
    return zygote


def _start_zygote(names: Sequence[str], environment: Mapping[str, str] | None) -> ZygoteHandle:
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with translate_start_errors(), theirs, ExitStack() as undoing:
        undoing.enter_context(ours)
        arguments = [str(theirs.fileno()), str(os.getpid()), *names]
        process = start_module(ZYGOTE_MODULE, arguments, passed=[theirs.fileno()], environment=environment)
        undoing.pop_all()
    return ZygoteHandle(process, trio.socket.from_stdlib_socket(ours))


async def _wait_until_warm(zygote: ZygoteHandle) -> None:
    packet = await zygote.requests.recv(REPORT_LIMIT)
    if not packet:
        raise StartFailed("the zygote died while it got warm", status=await zygote.process.wait())
    report = ChildReport.from_bytes(packet)
    if report.failure is not None:
        raise StartFailed(f"the zygote did not get warm: {report.failure}", report.errno)


EXEC_CHILD_MODULE = "coterie.orchestrator.processes.exec_child"


@attrs.frozen
class ExecStarter:
    """Starts children as any program is started, on the main thread."""

    async def start(
        self,
        start: ProcessStart,
        descriptors: Sequence[int] = (),
        *,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> ChildProcess:
        """As `ProcessStarter.start`. What /proc shows of the child's environment is the start's."""
        with translate_start_errors(), open_descriptor_channel(start, descriptors, stdout, stderr) as passage:
            numbers = passage.passed.numbers
            child = start_module(
                EXEC_CHILD_MODULE,
                [str(os.getpid()), *map(str, numbers)],
                passed=numbers,
                environment=start.environment,
                stderr=passage.passed.stderr,
            )
            passage.release()
            return await PendingChild(passage.reports, child).ready()
