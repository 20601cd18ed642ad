"""The warm starter: children are forked from a zygote, which is started again when it dies."""

import array
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager

import attrs
import trio

from coterie.orchestrator.starting.birth import Birth, Unanswered
from coterie.orchestrator.starting.child import Child
from coterie.orchestrator.starting.kernel import adopt_orphans
from coterie.orchestrator.starting.offspring import OURS
from coterie.orchestrator.starting.passage import COUNT_SIZE, REPORT_LIMIT, Report, open_passage
from coterie.orchestrator.starting.program import start_program
from coterie.orchestrator.starting.starter import Start, StartFailed, failing_as_start

PROGRAM = "coterie.orchestrator.starting.zygote"

AGENT_WARMTH = (
    "coterie.orchestrator.tree.agent_process",
    "coterie.agents.pipeline",
    "coterie.agents.tools",
    # What the SDK imports when its first request is sent.
    "httpcore2",
    "truststore",
    "anyio._backends._trio",
    "encodings.idna",
    "coterie.agents.model.rehearsal:rehearse",
)
"""What an agent needs before its first request has left: modules, and functions that keep what they have made."""

AT_ONCE = 32
"""Starts that are under way at a time; each has descriptors in flight, of which a user may have only so many."""
ENDED_WITHIN = 2.0
"""Seconds in which a zygote that is told to end does so."""


@attrs.define(eq=False)
class Zygote:
    """A zygote that takes requests."""

    process: Child
    requests: trio.socket.SocketType

    async def start(self, start: Start, descriptors: Sequence[int], stdout: int | None, stderr: int | None) -> Child:
        """As `Starter.start`; raises `Unanswered` too, when the zygote, or what it had forked, is gone."""
        with failing_as_start(), OURS.expecting(), open_passage(start, descriptors, stdout, stderr) as passage:
            numbers = array.array("i", passage.passed.numbers)
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)]
            try:
                await self.requests.sendmsg([len(numbers).to_bytes(COUNT_SIZE)], rights)
            except (BrokenPipeError, ConnectionResetError) as exc:
                raise Unanswered from exc
            passage.let_go()
            return await Birth(passage.reports, maker=self.process).ready()

    async def end(self) -> None:
        """Close the socket, at which the zygote ends; wait, kill. Returns once it is reaped; is not cancelled."""
        self.requests.close()
        with trio.CancelScope(shield=True):
            with trio.move_on_after(ENDED_WITHIN):
                await self.process.wait()
            self.process.send_signal(signal.SIGKILL)
            await self.process.wait()


@attrs.define(eq=False)
class WarmStarter:
    """Starts children by forking a zygote. Made by `open_warm_starter`; may be used by several tasks at once."""

    _names: Sequence[str]
    _environment: Mapping[str, str] | None
    _zygote: Zygote | None = None
    _changing: trio.Lock = attrs.field(factory=trio.Lock)
    _under_way: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(AT_ONCE))

    @property
    def zygote(self) -> int | None:
        """The process that children are forked from; None while there is none."""
        return None if self._zygote is None else self._zygote.process.pid

    async def start(
        self, start: Start, descriptors: Sequence[int] = (), *, stdout: int | None = None, stderr: int | None = None
    ) -> Child:
        """As `Starter.start`. If the zygote is gone, another is started and asked, once."""
        async with self._under_way:
            zygote = await self.ensure_zygote()
            try:
                return await zygote.start(start, descriptors, stdout, stderr)
            except Unanswered:
                await self._retire(zygote)
            try:
                return await (await self.ensure_zygote()).start(start, descriptors, stdout, stderr)
            except Unanswered as exc:
                raise StartFailed("the zygote died, and so did the one that took its place") from exc

    async def ensure_zygote(self) -> Zygote:
        """The zygote; started, and waited for until it is warm, if there is none. Raises `StartFailed`."""
        async with self._changing:
            if self._zygote is None:
                self._zygote = await _open_zygote(self._names, self._environment)
            return self._zygote

    async def end_zygote(self) -> None:
        """End the zygote, if there is one; the children live on."""
        if self._zygote is not None:
            await self._retire(self._zygote)

    async def _retire(self, zygote: Zygote) -> None:
        """End a zygote, which may be dead or may only look so: what else it was asked for is asked of the next one."""
        with trio.CancelScope(shield=True):
            async with self._changing:
                if self._zygote is zygote:
                    self._zygote = None
                    await zygote.end()


@asynccontextmanager
async def open_warm_starter(
    names: Sequence[str] = AGENT_WARMTH, *, environment: Mapping[str, str] | None = None
) -> AsyncIterator[WarmStarter]:
    """A starter whose zygote is warm and lives until the block ends; its children's owners wait for them before that.

    The zygote imports the modules in *names* and calls what is named `module:function`. For /proc, and so for whoever
    looks for strays, *environment* is its children's too, whatever their own says. While the block runs this process
    adopts orphaned descendants: see `run_reaper`. Enter it on the main thread. Raises `StartFailed` if the zygote does
    not come up.
    """
    had_adopted = adopt_orphans(yes=True)
    starter = WarmStarter(names, environment)
    try:
        await starter.ensure_zygote()
        yield starter
    finally:
        await starter.end_zygote()
        OURS.reap_adopted()
        adopt_orphans(yes=had_adopted)


async def _open_zygote(names: Sequence[str], environment: Mapping[str, str] | None) -> Zygote:
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


def _start_zygote(names: Sequence[str], environment: Mapping[str, str] | None) -> Zygote:
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with failing_as_start(), theirs, ExitStack() as undoing:
        undoing.enter_context(ours)
        arguments = [str(theirs.fileno()), str(os.getpid()), *names]
        process = start_program(PROGRAM, arguments, passed=[theirs.fileno()], environment=environment)
        undoing.pop_all()
    return Zygote(process, trio.socket.from_stdlib_socket(ours))


async def _wait_until_warm(zygote: Zygote) -> None:
    packet = await zygote.requests.recv(REPORT_LIMIT)
    if not packet:
        raise StartFailed("the zygote died while it got warm", status=await zygote.process.wait())
    report = Report.from_bytes(packet)
    if report.failure is not None:
        raise StartFailed(f"the zygote did not get warm: {report.failure}", report.errno)
