"""Agents that share a process: over a real socket, with the root's end and the process's own in one test."""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import attrs
import pytest
import trio

from coterie.agents.root_link.messages import ActivityChanged, AgentMessage, RunFailed
from coterie.agents.root_link.root_connection import RootConnection
from coterie.agents.runtime.agent_spec import AgentSpec, Incarnation, Services
from coterie.agents.runtime.in_process_host import FAILED, Interrupting, open_in_process_host
from coterie.agents.settings import Settings
from coterie.clock import Clock
from coterie.mailbox.envelope import MessageId
from coterie.orchestrator.gateway.admission import ModelGateway
from coterie.orchestrator.processes.child_process import ChildProcess
from coterie.orchestrator.processes.process_start import StartFailed
from coterie.orchestrator.supervisor.in_process_agents import MAX_SPEC_BYTES, InProcessAgent
from tests.orchestrator.supervisor.process_samples import ConnectedAgent, open_connected_agent

KILLED = -signal.SIGKILL


@attrs.define(eq=False)
class SharedProcess:
    """A process with guests, and its root."""

    agent: ConnectedAgent
    process: ChildProcess

    def run(self, name: str, task: str = "") -> InProcessAgent:
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
        return self.agent.desk.in_process.run(duty, self.process)

    async def live(self, duty: AgentSpec, station: RootConnection, _heeding: Interrupting) -> int:
        """Run the agent named *duty*: `wait`, `fail` in a task, or be `done`."""
        station.report_activity("running", duty.name)
        if duty.name == "fail":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_fail)
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
    with trio.fail_after(10), running() as process:
        async with open_connected_agent(ModelGateway(Clock()), "host") as agent:
            yield SharedProcess(agent, process)


async def received_messages(guest: InProcessAgent) -> list[AgentMessage]:
    messages: list[AgentMessage] = []
    while (frame := await guest.channel.receive()) is not None:
        assert frame.body is not None
        messages.append(frame.body)
    return messages


async def test_failed_or_refused_in_process_agent_does_not_stop_others(capfd: pytest.CaptureFixture[str]) -> None:
    async with open_shared_process() as house, open_in_process_host(house.agent.station, house.live):
        with pytest.raises(StartFailed, match="the task is too long"):
            house.run("done", "x" * MAX_SPEC_BYTES)
        other, failing, done = house.run("wait"), house.run("fail"), house.run("done")
        assert (await failing.wait(), await done.wait()) == (FAILED, 0)
        assert await received_messages(failing) == [
            ActivityChanged(activity="running", what="fail"),
            RunFailed(reason="KeyError: 'no such thing'"),
        ]
        assert await received_messages(done) == [ActivityChanged(activity="running", what="done")]
        assert not other.has_ended()
        assert "in _fail" in capfd.readouterr().err


async def test_in_process_agents_are_lost_with_the_connection() -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(match="the root process"), flatten_subgroups=True):
        async with open_shared_process() as house, open_in_process_host(house.agent.station, house.live):
            guest = house.run("wait")
            await trio.testing.wait_all_tasks_blocked(0.01)
            house.agent.cut()
            with trio.CancelScope(shield=True):
                await guest.wait_ended()
            assert (guest.status, guest.is_lost) == (KILLED, True)
            with pytest.raises(StartFailed, match="its parent, which has ended"):
                house.run("done")
            await trio.sleep_forever()
