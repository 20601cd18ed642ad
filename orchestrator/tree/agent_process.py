"""The process of one agent: it does its task, tells the parent what came of it, and ends; others may share it.

Importing this module imports the SDK; the zygote has done so before any agent is forked.
"""

import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import trio

from coterie.agents.control.station import Station, open_station
from coterie.agents.definitions import load_definitions
from coterie.agents.errors import ConfigInvalid, ControlLost, ReplyMalformed
from coterie.agents.gate import Gate
from coterie.agents.mcp.calling import open_caller
from coterie.agents.model.client import ModelClient, open_model_client
from coterie.agents.models import known_models
from coterie.agents.outcome import Ended
from coterie.clock import Clock
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.lifecycle import TaskNotification
from coterie.orchestrator.injected_faults import injected_faults
from coterie.orchestrator.keys import SessionKeys
from coterie.orchestrator.mailroom import Mailrooms, open_mailrooms
from coterie.orchestrator.readying import open_worker
from coterie.orchestrator.seat import Work, open_seat
from coterie.orchestrator.session import MAIN, Session
from coterie.orchestrator.teams.recording import recorded_team
from coterie.orchestrator.tree.duty import Duty
from coterie.orchestrator.tree.failures import first_failure
from coterie.orchestrator.tree.hosted import FAILED, Heeding, Interruptible, open_hosting
from coterie.orchestrator.tree.placing import first_words, report_at, task_at
from coterie.orchestrator.tree.remains import agent_tag
from coterie.orchestrator.tree.reporting import notification, report_to
from coterie.orchestrator.worker import Worker


def main(payload: bytes, descriptors: Sequence[int]) -> int:
    """Live the life of one agent; the first of *descriptors* is its control socket. The exit status is for the root."""
    duty = Duty.from_bytes(payload)
    with injected_faults(duty.name):
        return trio.run(_live, duty, descriptors[0])


async def _live(duty: Duty, control: int) -> int:
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=control)))
    try:
        async with open_station(stream) as station:
            return await _do(duty, station, _heeding_sigterm)
    except ControlLost as exc:
        sys.stderr.write(f"{exc}\n")
        return FAILED


async def _do(duty: Duty, station: Station, heeding: Heeding, mailrooms: Mailrooms | None = None) -> int:
    """Do the task and tell the parent; or else tell the root why not, who then tells the parent.

    The mail of the process is opened for it, unless it is there: *mailrooms* of one who runs as a task of another's.
    """
    try:
        async with _open(duty, station, mailrooms) as worker:
            await _work(worker, duty, heeding)
    except* (ConfigInvalid, MailboxError, OSError) as group:
        first = first_failure(group)
        station.give_up(str(first), is_for_user=isinstance(first, ConfigInvalid))
    else:
        return 0
    return FAILED


@asynccontextmanager
async def _open(duty: Duty, station: Station, mailrooms: Mailrooms | None) -> AsyncIterator[Worker]:
    session, clock = Session.find(duty.session), Clock.from_environment()
    async with AsyncExitStack() as stack:
        seat = stack.enter_context(open_seat(session, clock, name=duty.name, incarnation=duty.incarnation))
        if mailrooms is None:
            keys = None if duty.keys is None else SessionKeys.from_hex(duty.keys)
            mailrooms = stack.enter_context(open_mailrooms(session, clock, keys, seat.log.tell))
        loaded = seat.transcript.loaded
        mail = mailrooms.open(
            loaded.mail,
            name=duty.name,
            incarnation=duty.incarnation,
            believed=duty.believed,
            authority=station.authority,
        )
        room = await stack.enter_async_context(mail)
        stack.enter_context(station.delivering_to(room.take))
        client = await stack.enter_async_context(_open_client(duty, station.gate))
        work = await trio.to_thread.run_sync(_work_of, duty, session)
        if duty.is_taken_up and work.task in loaded.words:
            work = attrs.evolve(work, task="")
        if duty.parent is None and duty.chore is None and not loaded.words:
            work = attrs.evolve(work, task=first_words(session.task, work.task))
        asker = station.asker if duty.can_ask else None
        tag = agent_tag(duty.name, duty.incarnation)
        caller = await stack.enter_async_context(open_caller(tag, duty.mcp, work.settings.mcp.call_seconds))
        opened = open_worker(work, seat, room, client, station, caller, asker=asker)
        worker = await stack.enter_async_context(opened)
        await stack.enter_async_context(open_hosting(station, partial(_do, mailrooms=mailrooms)))
        station.tell("running")
        yield worker


def _work_of(duty: Duty, session: Session) -> Work:
    kind = None if duty.definition is None else load_definitions(session.project).get(duty.definition)
    if kind is not None and duty.memory is not None:
        kind = attrs.evolve(kind, memory=duty.memory)
    # Subagents come and go without a look at the file.
    team = recorded_team(session) if duty.parent is None or duty.stays else None
    names = [] if team is None or duty.parent != MAIN else [member.name for member in team.members]
    return Work(
        task=task_at(duty),
        project=session.project if duty.directory is None else Path(duty.directory),
        model=known_models().get(duty.model),
        settings=duty.settings,
        kind=kind,
        is_bare=duty.is_bare,
        is_embedded=duty.server is not None,
        above=duty.above,
        stays=duty.stays,
        team=team if duty.parent is None else None,
        lead=duty.parent if duty.stays else None,
        colleagues=tuple(name for name in names if name != duty.name) if duty.name in names else (),
        at_work=duty.at_work,
        has_teammate=duty.has_teammate,
        plan=duty.plan,
        is_approved=duty.is_approved,
        fork=None if duty.fork is None else Path(duty.fork),
    )


def _open_client(duty: Duty, gate: Gate) -> AbstractAsyncContextManager[ModelClient]:
    if duty.server is None:
        return open_model_client(gate)
    return open_model_client(gate, base_url=duty.server, api_key="embedded")


async def _work(worker: Worker, duty: Duty, heeding: Heeding) -> None:
    """Let the agent work, and tell the parent what came of it."""

    async def report(ended: Ended) -> None:
        await _report(worker, duty, notification(ended, worker.room.mail.reason_to_end()))

    async with heeding(worker.agent):
        if duty.chore is not None:
            await worker.do(duty.chore)
            return
        try:
            await (worker.live(report, lead=duty.parent) if duty.stays else worker.run(report))
        except (ReplyMalformed, MailboxError, OSError) as exc:
            await _report(worker, duty, TaskNotification(status="failed", summary=str(exc)))


async def _report(worker: Worker, duty: Duty, report: TaskNotification) -> None:
    if duty.parent is not None:
        told = await report_at(duty, report)
        await report_to(duty.parent, told, duty.report, worker.room.router, worker.room.sender)


@asynccontextmanager
async def _heeding_sigterm(agent: Interruptible) -> AsyncIterator[None]:
    """SIGTERM ends the turn that is under way."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_heed, signals, agent)
            yield
            nursery.cancel_scope.cancel()


async def _heed(signals: AsyncIterator[int], agent: Interruptible) -> None:
    async for _ in signals:
        agent.interrupt()
