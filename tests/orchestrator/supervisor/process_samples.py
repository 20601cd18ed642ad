"""Services of a root without a starter, connections of agents, and agent processes that are never started."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from coterie.agents.events.agent_events import Event
from coterie.agents.root_link.channel import open_channel
from coterie.agents.root_link.messages import AgentMessage, agent_decoder
from coterie.agents.root_link.root_connection import RootConnection, open_root_connection
from coterie.agents.root_link.spawn_request import Spawned, SpawnRefused, SpawnRequest
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.clock import Clock
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.approvals.agent_approvals import AgentApprovals
from coterie.orchestrator.approvals.service import open_approvals
from coterie.orchestrator.gateway.admission import ModelGateway
from coterie.orchestrator.processes.child_process import ChildProcess
from coterie.orchestrator.processes.process_start import ProcessStart, StartFailed
from coterie.orchestrator.supervisor.agent_connection import AgentConnection
from coterie.orchestrator.supervisor.agent_process import AgentProcess
from coterie.orchestrator.supervisor.agent_status import StatusPublisher
from coterie.orchestrator.supervisor.root_services import ProcessLimits, RootServices
from coterie.session_directory import SessionDirectory


class NoSpawner:
    async def spawn(self, request: SpawnRequest) -> Spawned:
        await trio.lowlevel.checkpoint()
        if request.name is None:
            raise SpawnRefused("No agent was started: there is no room.")
        return Spawned(name=request.name, incarnation=2, report=MessageId("r"))

    async def stop(self, name: str) -> None:
        raise SpawnRefused(f"There is no {name} that could be stopped.")

    async def request_shutdown(self, request: Envelope) -> None:
        if request.recipient.name != "boss":
            raise SpawnRefused(f"There is no {request.recipient.name} that could end.")

    async def wait_until_idle(self) -> None:
        """As `Spawner.wait_until_idle`."""


class NoStarter:
    async def start(self, start: ProcessStart, *_: Any, **__: Any) -> ChildProcess:
        raise StartFailed(start.title)


@asynccontextmanager
async def open_root_services(session: SessionDirectory) -> AsyncIterator[RootServices]:
    """Services of the root of *session*, with its real mail, gateway and approvals."""
    clock, events = Clock(), list[Event]()
    with SessionMail.open(session, clock) as mail:
        status = StatusPublisher(mail, events.append)
        yield RootServices(
            mail=mail,
            starter=NoStarter(),
            gateway=ModelGateway(clock),
            approvals=await open_approvals(mail, status.sender, events.append),
            status=status,
            emit=events.append,
            clock=clock,
        )


def make_process(services: RootServices, spec: AgentSpec, emit: Callable[[Event], None]) -> AgentProcess:
    """A process of *spec* that is not started, and that has no children."""
    return AgentProcess(
        spec=spec,
        services=services,
        limits=ProcessLimits(),
        spawner=NoSpawner(),
        emit=emit,
        shutdown_reason=lambda: "the test ends",
        has_busy_children=lambda: False,
        is_killed_immediately=lambda: False,
    )


@attrs.define(eq=False)
class ConnectedAgent:
    """Both ends of the connection between the root and an agent."""

    desk: AgentConnection
    station: RootConnection
    _agent_socket: socket.socket

    def cut(self) -> None:
        """End the connection as the death of the agent's process would."""
        self._agent_socket.shutdown(socket.SHUT_RDWR)


@asynccontextmanager
async def open_connected_agent(
    gateway: ModelGateway,
    name: str,
    on_message: Callable[[AgentMessage], None] = lambda _: None,
    approvals: AgentApprovals | None = None,
) -> AsyncIterator[ConnectedAgent]:
    near, far = socket.socketpair()

    async def serve(task_status: trio.TaskStatus[AgentConnection] = trio.TASK_STATUS_IGNORED) -> None:
        async with (
            gateway.open_client(name) as client,
            open_channel(trio.SocketStream(trio.socket.from_stdlib_socket(near)), agent_decoder) as channel,
        ):
            desk = AgentConnection(client, on_message, NoSpawner(), None, name, approvals)
            task_status.started(desk)
            await desk.run(channel)

    async with trio.open_nursery() as nursery:
        desk = await nursery.start(serve)
        async with open_root_connection(trio.SocketStream(trio.socket.from_stdlib_socket(far))) as station:
            yield ConnectedAgent(desk, station, far)
