"""Agents that share a process: over a real socket, with the root's end and the process's own in one test."""

import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import attrs
import pytest
import trio

from coterie.agents.root_link.channel import open_channel
from coterie.agents.root_link.messages import ActivityChanged, AgentMessage, RunFailed, agent_decoder
from coterie.agents.root_link.root_connection import RootConnection, open_root_connection
from coterie.agents.root_link.spawn_request import Spawned, SpawnRefused, SpawnRequest
from coterie.agents.runtime.agent_spec import AgentSpec, Incarnation, Services
from coterie.agents.runtime.in_process_host import FAILED, Interrupting, open_in_process_host
from coterie.agents.settings import Settings
from coterie.clock import Clock
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.orchestrator.gateway.admission import ModelGateway
from coterie.orchestrator.processes.child_process import ChildProcess
from coterie.orchestrator.processes.process_start import StartFailed
from coterie.orchestrator.supervisor.agent_connection import AgentConnection
from coterie.orchestrator.supervisor.in_process_agents import MAX_SPEC_BYTES, InProcessAgent

KILLED = -signal.SIGKILL


class NoSpawner:
    """Starts no agents."""

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """As `Spawner.spawn`."""
        raise SpawnRefused(f"No {request.definition} was started.")

    async def stop(self, name: str) -> None:
        """As `Spawner.stop`."""
        raise SpawnRefused(f"There is no {name} that could be stopped.")

    async def request_shutdown(self, request: Envelope) -> None:
        """As `Spawner.request_shutdown`."""
        raise SpawnRefused(f"There is no {request.recipient.name} that could end.")

    async def wait_until_idle(self) -> None:
        """As `Spawner.wait_until_idle`."""


@attrs.define(eq=False)
class Turn:
    """An agent that runs until it is killed."""

    is_over: trio.Event = attrs.field(factory=trio.Event)

    def interrupt(self) -> None:
        """As `Interruptible.interrupt`."""
        self.is_over.set()


@attrs.define(eq=False)
class SharedProcess:
    """A process with guests, and its root."""

    desk: AgentConnection
    station: RootConnection
    process: ChildProcess
    _host: socket.socket
    may_leave: trio.Event = attrs.field(factory=trio.Event)

    def run(self, name: str, task: str = "") -> InProcessAgent:
        """Have a guest that does what its name says."""
        duty = AgentSpec(
            name=name,
            parent="host",
            report=MessageId("r"),
            task=task,
            model="m",
            settings=Settings(),
            services=Services(session_id="s"),
            incarnation=Incarnation(number=1),
        )
        return self.desk.in_process.run(duty, self.process)

    def cut(self) -> None:
        """End the connection as the death of the process would."""
        self._host.shutdown(socket.SHUT_RDWR)

    async def live(self, duty: AgentSpec, station: RootConnection, heeding: Interrupting) -> int:
        """Run the agent named *duty*: `wait`, `fail` in a task, take a `turn`, `leave` when allowed, or be `done`."""
        station.report_activity("running", duty.name)
        if duty.name == "fail":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_fail)
        if duty.name == "leave":
            async with heeding(Turn()):
                pass
            await self.may_leave.wait()
        if duty.name == "turn":
            turn = Turn()
            async with heeding(turn):
                await turn.is_over.wait()
        if duty.name == "wait":
            await trio.sleep_forever()
        return 0


async def _fail() -> None:
    await trio.lowlevel.checkpoint()
    raise KeyError("no such thing")


@contextmanager
def running() -> Iterator[ChildProcess]:
    """A child process in place of the host of the in-process agents."""
    with subprocess.Popen(["/bin/sleep", "600"]) as sleeper:
        pidfd = os.pidfd_open(sleeper.pid)
        try:
            yield ChildProcess(sleeper.pid, pidfd)
        finally:
            os.close(pidfd)
            sleeper.kill()


@asynccontextmanager
async def open_shared_process() -> AsyncIterator[SharedProcess]:
    near, far = socket.socketpair()
    gate = ModelGateway(Clock())

    async def serve(task_status: trio.TaskStatus[AgentConnection] = trio.TASK_STATUS_IGNORED) -> None:
        async with (
            gate.open_client("host") as asker,
            open_channel(trio.SocketStream(trio.socket.from_stdlib_socket(near)), agent_decoder) as line,
        ):
            desk = AgentConnection(asker, lambda _: None, NoSpawner())
            task_status.started(desk)
            await desk.run(line)

    with trio.fail_after(10), running() as process:
        async with trio.open_nursery() as nursery:
            desk = await nursery.start(serve)
            async with open_root_connection(trio.SocketStream(trio.socket.from_stdlib_socket(far))) as station:
                yield SharedProcess(desk, station, process, far)


async def received_messages(guest: InProcessAgent) -> list[AgentMessage]:
    """Return all messages of an in-process agent after its end."""
    messages: list[AgentMessage] = []
    while (frame := await guest.channel.receive()) is not None:
        assert frame.body is not None
        messages.append(frame.body)
    return messages


async def test_error_in_one_in_process_agent_does_not_stop_others(capfd: pytest.CaptureFixture[str]) -> None:
    async with open_shared_process() as house, open_in_process_host(house.station, house.live):
        other, failing, done = house.run("wait"), house.run("fail"), house.run("done")
        assert (await failing.wait(), await done.wait()) == (FAILED, 0)
        assert await received_messages(failing) == [
            ActivityChanged(activity="running", what="fail"),
            RunFailed(reason="KeyError: 'no such thing'"),
        ]
        assert await received_messages(done) == [ActivityChanged(activity="running", what="done")]
        assert not other.has_ended()
        assert "in _fail" in capfd.readouterr().err


async def test_kill_ends_only_one_in_process_agent() -> None:
    async with open_shared_process() as house, open_in_process_host(house.station, house.live):
        first, second = house.run("wait"), house.run("wait")
        await trio.testing.wait_all_tasks_blocked(0.01)
        first.send_signal(signal.SIGKILL)
        assert await first.wait() == KILLED
        assert not second.has_ended()


async def test_sigterm_cancels_only_the_turn_of_an_in_process_agent() -> None:
    async with open_shared_process() as house, open_in_process_host(house.station, house.live):
        first, second = house.run("turn"), house.run("turn")
        await trio.testing.wait_all_tasks_blocked(0.01)
        first.send_signal(signal.SIGTERM)
        assert await first.wait() == 0
        assert not second.has_ended()


async def test_host_exit_waits_for_finishing_agents_and_kills_waiting_ones() -> None:
    async with open_shared_process() as house:
        async with open_in_process_host(house.station, house.live):
            leaving, waiting = house.run("leave"), house.run("wait")
            await trio.testing.wait_all_tasks_blocked(0.01)
            house.may_leave.set()
        assert (await leaving.wait(), await waiting.wait()) == (0, KILLED)


async def test_in_process_start_fails_without_a_host() -> None:
    async with open_shared_process() as house:
        early = house.run("done")
        assert await early.wait() == KILLED
        async with open_in_process_host(house.station, house.live):
            pass
        assert await house.run("done").wait() == KILLED


async def test_in_process_agents_are_lost_with_the_connection() -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(match="the root process"), flatten_subgroups=True):
        async with open_shared_process() as house, open_in_process_host(house.station, house.live):
            guest = house.run("wait")
            await trio.testing.wait_all_tasks_blocked(0.01)
            house.cut()
            with trio.CancelScope(shield=True):
                await guest.wait_ended()
            assert (guest.status, guest.is_lost) == (KILLED, True)
            with pytest.raises(StartFailed, match="the parent of the agent has ended"):
                house.run("done")
            await trio.sleep_forever()


async def test_spec_larger_than_a_frame_is_refused() -> None:
    async with open_shared_process() as house, open_in_process_host(house.station, house.live):
        with pytest.raises(StartFailed, match="the task is too long"):
            house.run("done", "x" * MAX_SPEC_BYTES)
        assert await house.run("done").wait() == 0
