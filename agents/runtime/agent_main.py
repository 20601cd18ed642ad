"""Entry point of an agent process: runs the task, reports the result and exits.

Importing this module imports the SDK. The zygote (warm process from which agents are forked) does so before any fork.
"""

import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import attrs
import trio

from coterie.agents.errors import ControlLost, ReplyMalformed
from coterie.agents.loop.model.client import open_model_client
from coterie.agents.loop.run_result import RunEnded
from coterie.agents.mcp.client import McpClient
from coterie.agents.prompts import render
from coterie.agents.root_link.root_connection import RootConnection, open_root_connection
from coterie.agents.runtime.agent_runner import AgentRunner
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.runtime.build_agent import open_agent_runner
from coterie.agents.runtime.in_process_host import FAILED, Interrupting, open_in_process_host
from coterie.agents.runtime.setup.agent_files import open_agent_files
from coterie.agents.runtime.setup.agent_mail import ProcessMail, open_process_mail
from coterie.agents.runtime.setup.agent_parts import load_agent_parts
from coterie.agents.runtime.task_report import add_worktree_state, send_report, task_notification
from coterie.clock import Clock
from coterie.errors import ConfigInvalid, first_exception
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.fault_points import inject_faults
from coterie.mailbox.message_bodies import TaskNotification
from coterie.mailbox.transports.session_mail import SessionKeys
from coterie.process_identity import agent_tag
from coterie.session_directory import SessionDirectory


def combine_lead_task(task: str, message: str) -> str:
    """Return the task of a lead (first agent of a session) that has not received the session's first task, *task*, yet.

    *message* is the user message of this start. If it is neither empty nor *task* (after a crash), both are joined.
    """
    return message or task if message in ("", task) else f"{task}\n\n{message}"


def complete_spec(spec: AgentSpec, session: SessionDirectory, known: Sequence[str]) -> AgentSpec:
    """Return *spec* with a working directory; with an empty task if the agent is resumed and the task is in *known*.

    *known* are the user texts in the agent's transcript; a lead without any, and without a job, gets the session's
    first task. The task of a fork (which continues its parent's conversation) in a git worktree begins with a notice.
    """
    task, worktree = spec.task, spec.workspace.worktree
    if worktree is not None and spec.fork is not None and task:
        moved = render("fork_worktree", directory=str(worktree.directory), origin=str(worktree.origin))
        task = f"{moved}\n\n{task}"
    if spec.incarnation.is_resumed and task in known:
        task = ""
    if spec.parent is None and spec.job is None and not known:
        task = combine_lead_task(session.task, task)
    workspace = attrs.evolve(spec.workspace, directory=spec.workspace.directory or session.project)
    return attrs.evolve(spec, task=task, workspace=workspace)


def main(payload: bytes, descriptors: Sequence[int]) -> int:
    """Run the agent of the encoded spec *payload*; return its exit status. *descriptors*: socket to the supervisor."""
    spec = AgentSpec.from_bytes(payload)
    with inject_faults(spec.name):
        return trio.run(_run_agent, spec, descriptors[0])


async def _run_agent(spec: AgentSpec, control: int) -> int:
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=control)))
    try:
        async with open_root_connection(stream) as root:
            return await _run_spec(spec, root, _interrupt_on_sigterm)
    except ControlLost as exc:
        sys.stderr.write(f"{exc}\n")
        return FAILED


async def _run_spec(
    spec: AgentSpec, root: RootConnection, interrupting: Interrupting, process_mail: ProcessMail | None = None
) -> int:
    """Run the agent of *spec*, report success or failure of its task to its parent agent, and return exit status 0.

    If it cannot be set up or report, tell the root (supervisor process) and return 1. An agent that is a task in its
    parent's process uses *process_mail*, the mail of that process; None opens the mail of a new process.
    """
    try:
        async with _open(spec, root, process_mail) as runner:
            await _run(runner, interrupting)
    except* (ConfigInvalid, MailboxError, OSError) as group:
        first = first_exception(group)
        root.report_failure(str(first), is_for_user=isinstance(first, ConfigInvalid))
    else:
        return 0
    return FAILED


@asynccontextmanager
async def _open(spec: AgentSpec, root: RootConnection, process_mail: ProcessMail | None) -> AsyncIterator[AgentRunner]:
    session, clock = SessionDirectory.find(spec.services.session_id), Clock.from_environment()
    async with AsyncExitStack() as stack:
        files = stack.enter_context(
            open_agent_files(session, clock, name=spec.name, incarnation=spec.incarnation.number)
        )
        if process_mail is None:
            keys = None if spec.services.mail_key is None else SessionKeys.from_hex(spec.services.mail_key)
            process_mail = stack.enter_context(open_process_mail(session, clock, keys, files.log.emit))
        opening_mail = process_mail.open(
            files.transcript.loaded.mail,
            name=spec.name,
            incarnation=spec.incarnation.number,
            believed=spec.incarnation.trusted_digests,
            authority=root.services,
        )
        mail = await stack.enter_async_context(opening_mail)
        stack.enter_context(root.delivering_to(mail.accept))
        url = spec.services.api_url
        opening_client = open_model_client(root.gate, base_url=url, api_key=None if url is None else "embedded")
        client = await stack.enter_async_context(opening_client)
        tag = agent_tag(spec.name, spec.incarnation.number)
        mcp = McpClient(tag, spec.services.mcp, spec.settings.mcp.call_seconds)
        stack.push_async_callback(mcp.aclose)
        spec = complete_spec(spec, session, files.transcript.loaded.words)
        parts = await trio.to_thread.run_sync(load_agent_parts, spec, files, mail, root)
        runner = await stack.enter_async_context(open_agent_runner(parts, client, mcp))
        await stack.enter_async_context(open_in_process_host(root, partial(_run_spec, process_mail=process_mail)))
        root.report_activity("running")
        yield runner


async def _run(runner: AgentRunner, interrupting: Interrupting) -> None:
    """Run the task and send the result to the agent's parent, or run its offline job, such as a compaction."""
    spec, mail = runner.parts.spec, runner.parts.mail

    async def send(notification: TaskNotification) -> None:
        if spec.parent is not None:
            complete = await add_worktree_state(spec, notification)
            await send_report(spec.parent, complete, spec.report, mail.router, mail.sender)

    async def report(ended: RunEnded) -> None:
        await send(task_notification(ended, mail.messaging.reason_to_end()))

    async with interrupting(runner.agent.interrupt):
        if spec.job is not None:
            await runner.run_job(spec.job)
            return
        try:
            await (runner.run_teammate(report, lead=spec.parent) if spec.is_teammate else runner.run(report))
        except (ReplyMalformed, MailboxError, OSError) as exc:
            await send(TaskNotification(status="failed", summary=str(exc)))


@asynccontextmanager
async def _interrupt_on_sigterm(interrupt: Callable[[], None]) -> AsyncIterator[None]:
    """Within the block, call *interrupt*, which stops the agent's current turn, whenever SIGTERM arrives."""

    async def watch() -> None:
        async for _ in signals:
            interrupt()

    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            yield
            nursery.cancel_scope.cancel()
