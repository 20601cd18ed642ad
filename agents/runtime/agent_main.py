"""Entry point of an agent process: does the task, reports the result and exits.

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

from coterie.agents.definitions.store import load_definitions
from coterie.agents.definitions.team_definition import load_recorded_team
from coterie.agents.errors import ControlLost, ReplyMalformed
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.loop.model.client import ModelClient, open_model_client
from coterie.agents.loop.model.gateway import Gateway
from coterie.agents.loop.run_result import RunEnded
from coterie.agents.mcp.client import open_mcp_client
from coterie.agents.prompts import render
from coterie.agents.root_link.root_connection import RootConnection, open_root_connection
from coterie.agents.runtime.agent_runner import AgentRunner
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.runtime.build_agent import open_agent_runner
from coterie.agents.runtime.in_process_host import FAILED, Interruptible, Interrupting, open_in_process_host
from coterie.agents.runtime.setup.agent_files import AgentWork, open_agent_files
from coterie.agents.runtime.setup.agent_mail import ProcessMail, open_process_mail
from coterie.agents.runtime.task_report import add_worktree_state, send_report, task_notification
from coterie.clock import Clock
from coterie.errors import ConfigInvalid, first_exception
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.fault_points import inject_faults
from coterie.mailbox.message_bodies import TaskNotification
from coterie.mailbox.transports.session_mail import SessionKeys
from coterie.process_identity import agent_tag
from coterie.session_directory import MAIN, SessionDirectory


def task_in_workspace(spec: AgentSpec) -> str:
    """The task, as it is to be understood where the agent works: a fork knows another place."""
    worktree = spec.workspace.worktree
    if worktree is None or spec.fork is None or not spec.task:
        return spec.task
    moved = render("fork_worktree", directory=str(worktree.directory), origin=str(worktree.origin))
    return f"{moved}\n\n{spec.task}"


def combine_lead_task(task: str, words: str) -> str:
    """What a lead is told that was never told its session's *task*: a crash came before that; and now the *words*."""
    return words or task if words in ("", task) else f"{task}\n\n{words}"


def main(payload: bytes, descriptors: Sequence[int]) -> int:
    """Live the life of one agent; the first of *descriptors* is its control socket. The exit status is for the root."""
    spec = AgentSpec.from_bytes(payload)
    with inject_faults(spec.name):
        return trio.run(_run_agent, spec, descriptors[0])


async def _run_agent(spec: AgentSpec, control: int) -> int:
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=control)))
    try:
        async with open_root_connection(stream) as station:
            return await _run_job(spec, station, _interrupt_on_sigterm)
    except ControlLost as exc:
        sys.stderr.write(f"{exc}\n")
        return FAILED


async def _run_job(
    spec: AgentSpec, station: RootConnection, heeding: Interrupting, mailrooms: ProcessMail | None = None
) -> int:
    """Do the task and tell the parent; or else tell the root why not, who then tells the parent.

    The mail of the process is opened for it, unless it is there: *mailrooms* of one who runs as a task of another's.
    """
    try:
        async with _open(spec, station, mailrooms) as worker:
            await _work(worker, spec, heeding)
    except* (ConfigInvalid, MailboxError, OSError) as group:
        first = first_exception(group)
        station.report_failure(str(first), is_for_user=isinstance(first, ConfigInvalid))
    else:
        return 0
    return FAILED


@asynccontextmanager
async def _open(spec: AgentSpec, station: RootConnection, mailrooms: ProcessMail | None) -> AsyncIterator[AgentRunner]:
    session, clock = SessionDirectory.find(spec.services.session_id), Clock.from_environment()
    async with AsyncExitStack() as stack:
        seat = stack.enter_context(
            open_agent_files(session, clock, name=spec.name, incarnation=spec.incarnation.number)
        )
        if mailrooms is None:
            keys = None if spec.services.mail_key is None else SessionKeys.from_hex(spec.services.mail_key)
            mailrooms = stack.enter_context(open_process_mail(session, clock, keys, seat.log.emit))
        loaded = seat.transcript.loaded
        mail = mailrooms.open(
            loaded.mail,
            name=spec.name,
            incarnation=spec.incarnation.number,
            believed=spec.incarnation.trusted_digests,
            authority=station.authority,
        )
        room = await stack.enter_async_context(mail)
        stack.enter_context(station.delivering_to(room.accept))
        client = await stack.enter_async_context(_open_client(spec, station.gate))
        work = await trio.to_thread.run_sync(_work_of, spec, session)
        if spec.incarnation.is_resumed and work.task in loaded.words:
            work = attrs.evolve(work, task="")
        if spec.parent is None and spec.job is None and not loaded.words:
            work = attrs.evolve(work, task=combine_lead_task(session.task, work.task))
        asker = station.asker if spec.services.can_prompt else None
        tag = agent_tag(spec.name, spec.incarnation.number)
        caller = await stack.enter_async_context(
            open_mcp_client(tag, spec.services.mcp, work.settings.mcp.call_seconds)
        )
        opened = open_agent_runner(work, seat, room, client, station, caller, asker=asker)
        worker = await stack.enter_async_context(opened)
        await stack.enter_async_context(open_in_process_host(station, partial(_run_job, mailrooms=mailrooms)))
        station.report_activity("running")
        yield worker


def _work_of(spec: AgentSpec, session: SessionDirectory) -> AgentWork:
    kind = None if spec.definition is None else load_definitions(session.project).get(spec.definition)
    if kind is not None and spec.memory is not None:
        kind = attrs.evolve(kind, memory=spec.memory)
    # Subagents come and go without a look at the file.
    team = load_recorded_team(session) if spec.parent is None or spec.is_teammate else None
    names = [] if team is None or spec.parent != MAIN else [member.name for member in team.members]
    return AgentWork(
        task=task_in_workspace(spec),
        project=spec.workspace.directory or session.project,
        model=known_models().get(spec.model),
        settings=spec.settings,
        definition=kind,
        is_bare=spec.is_bare,
        is_embedded=spec.services.api_url is not None,
        parent_settings=spec.parent_settings,
        is_teammate=spec.is_teammate,
        team=team if spec.parent is None else None,
        lead=spec.parent if spec.is_teammate else None,
        teammates=tuple(name for name in names if name != spec.name) if spec.name in names else (),
        running_children=spec.incarnation.running_children,
        has_teammate=spec.incarnation.has_teammate,
        plan=spec.plan,
        is_approved=spec.incarnation.is_plan_approved,
        fork=None if spec.fork is None else Path(spec.fork),
    )


def _open_client(spec: AgentSpec, gate: Gateway) -> AbstractAsyncContextManager[ModelClient]:
    if spec.services.api_url is None:
        return open_model_client(gate)
    return open_model_client(gate, base_url=spec.services.api_url, api_key="embedded")


async def _work(worker: AgentRunner, spec: AgentSpec, heeding: Interrupting) -> None:
    """Let the agent work, and tell the parent what came of it."""

    async def report(ended: RunEnded) -> None:
        await _report(worker, spec, task_notification(ended, worker.mail.messaging.reason_to_end()))

    async with heeding(worker.agent):
        if spec.job is not None:
            await worker.run_job(spec.job)
            return
        try:
            await (worker.run_teammate(report, lead=spec.parent) if spec.is_teammate else worker.run(report))
        except (ReplyMalformed, MailboxError, OSError) as exc:
            await _report(worker, spec, TaskNotification(status="failed", summary=str(exc)))


async def _report(worker: AgentRunner, spec: AgentSpec, report: TaskNotification) -> None:
    if spec.parent is not None:
        told = await add_worktree_state(spec, report)
        await send_report(spec.parent, told, spec.report, worker.mail.router, worker.mail.sender)


@asynccontextmanager
async def _interrupt_on_sigterm(agent: Interruptible) -> AsyncIterator[None]:
    """SIGTERM ends the turn that is under way."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_sigterm, signals, agent)
            yield
            nursery.cancel_scope.cancel()


async def _watch_sigterm(signals: AsyncIterator[int], agent: Interruptible) -> None:
    async for _ in signals:
        agent.interrupt()
