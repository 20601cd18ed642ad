"""The process of one agent: it does its task, tells the parent what came of it, and ends.

Importing this module imports the SDK; the zygote has done so before any agent is forked.
"""

import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from coterie.agents.agent import Agent
from coterie.agents.control.station import open_station
from coterie.agents.definitions import load_definitions
from coterie.agents.errors import ConfigInvalid, ControlLost, ReplyMalformed
from coterie.agents.gate import Gate
from coterie.agents.model.client import ModelClient, open_model_client
from coterie.agents.models import known_models
from coterie.clock import Clock
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.lifecycle import TaskNotification
from coterie.orchestrator.mailroom import open_mailroom
from coterie.orchestrator.seat import Work, open_seat
from coterie.orchestrator.session import Session
from coterie.orchestrator.tree.duty import Duty
from coterie.orchestrator.tree.reporting import notification, report_to
from coterie.orchestrator.worker import Worker, open_worker

ENTRY = f"{__name__}:main"

FAILED = 1
"""The exit status of a process that could not begin, or could not tell its parent what came of the task."""


def main(payload: bytes, descriptors: Sequence[int]) -> int:
    """Live the life of one agent; the first of *descriptors* is its control socket. The exit status is for the root."""
    return trio.run(_live, Duty.from_bytes(payload), descriptors[0])


async def _live(duty: Duty, control: int) -> int:
    try:
        async with _open(duty, control) as worker:
            report = await _work(worker, duty)
            if duty.parent is not None:
                await report_to(duty.parent, report, duty.report, worker.room.router, worker.room.sender)
            return 0
    except (ControlLost, ConfigInvalid, MailboxError, OSError) as exc:
        # The root tells the parent when this process ends otherwise than well, and says why.
        sys.stderr.write(f"{exc}\n")
        return FAILED


@asynccontextmanager
async def _open(duty: Duty, control: int) -> AsyncIterator[Worker]:
    session, clock = Session.find(duty.session), Clock.from_environment()
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=control)))
    async with AsyncExitStack() as stack:
        seat = stack.enter_context(open_seat(session, clock, name=duty.name, incarnation=duty.incarnation))
        mail = open_mailroom(
            session, clock, seat.transcript.loaded.mail, seat.log.tell, name=duty.name, incarnation=duty.incarnation
        )
        room = await stack.enter_async_context(mail)
        station = await stack.enter_async_context(open_station(stream, room.take))
        client = await stack.enter_async_context(_open_client(duty, station.gate))
        work = _work_of(duty, session)
        worker = await stack.enter_async_context(open_worker(work, seat, room, client, station=station))
        station.tell("running")
        yield worker


def _work_of(duty: Duty, session: Session) -> Work:
    kind = None if duty.definition is None else load_definitions(session.project).get(duty.definition)
    return Work(
        task=duty.task,
        project=session.project,
        model=known_models().get(duty.model),
        settings=duty.settings,
        kind=kind,
        is_bare=duty.is_bare,
        is_embedded=duty.server is not None,
        above=duty.above,
        fork=None if duty.fork is None else Path(duty.fork),
    )


def _open_client(duty: Duty, gate: Gate) -> AbstractAsyncContextManager[ModelClient]:
    if duty.server is None:
        return open_model_client(gate)
    return open_model_client(gate, base_url=duty.server, api_key="embedded")


async def _work(worker: Worker, duty: Duty) -> TaskNotification:
    """Let the agent work, and say what came of it. SIGTERM ends the turn that is under way."""
    run = partial(worker.live, lead=duty.parent) if duty.stays else worker.run
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_heed, signals, worker.agent)
            try:
                report = notification(await run())
            except (ReplyMalformed, MailboxError, OSError) as exc:
                report = TaskNotification(status="failed", summary=str(exc))
            nursery.cancel_scope.cancel()
    return report


async def _heed(signals: AsyncIterator[int], agent: Agent) -> None:
    async for _ in signals:
        agent.interrupt()
