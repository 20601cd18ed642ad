"""Program of a session's root process; its arguments are two descriptors: the client's socket and the request."""

import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from coterie.agents.root_link.channel import open_channel
from coterie.agents.root_link.messages import RunFailed
from coterie.agents.runtime.setup.sandbox_setup import check_sandbox
from coterie.agents.tools.web.hosts import hosts_from_settings
from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.fault_points import inject_faults
from coterie.orchestrator.control.launch_protocol import SessionEnded, SessionOpened, client_message_decoder
from coterie.orchestrator.doctor.checks import check_machine, repair
from coterie.orchestrator.processes.api_server_process import ApiServerFailed, open_api_server
from coterie.orchestrator.processes.linux import set_title
from coterie.orchestrator.processes.process_start import StartFailed
from coterie.orchestrator.root.root import LaunchClient, SessionRoot, lead_spec, open_root
from coterie.orchestrator.session.overview import read_overview
from coterie.orchestrator.session.session_request import SessionRequest
from coterie.orchestrator.supervisor.agent_outcome import AgentOutcome
from coterie.orchestrator.supervisor.agent_status import ROOT_NAME
from coterie.orchestrator.teams.team_record import start_team_record
from coterie.session_directory import SessionDirectory

ROOT_LOG = "root.log"
"""In the session's directory: what its root, and nothing else, had to say."""

EXPECTED_ERRORS = (ConfigInvalid, ApiServerFailed, StartFailed, MailboxError, OSError)
"""What may keep a root from its work."""


def main() -> None:
    """Be the root of one session, and exit."""
    line, assignment = (int(argument) for argument in sys.argv[1:])
    with os.fdopen(assignment, "rb") as file:
        wanted = SessionRequest.from_bytes(file.read())
    with inject_faults(ROOT_NAME):
        trio.run(_serve, wanted, socket.socket(fileno=line))


async def _serve(assignment: SessionRequest, near: socket.socket) -> None:
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(near))
    async with open_channel(stream, client_message_decoder) as line:
        viewer = LaunchClient.over(line)
        try:
            viewer.send(await _run(assignment, viewer))
        except* EXPECTED_ERRORS as group:
            viewer.send(_startup_failure(group))


async def _run(assignment: SessionRequest, viewer: LaunchClient) -> SessionEnded | RunFailed:
    clock = Clock.from_environment()
    await trio.to_thread.run_sync(check_sandbox, assignment.settings, assignment.project)
    hosts_from_settings(assignment.settings)  # refused here, or each agent would be
    # Before anything is written: without a model there is no session.
    async with _open_api_server(assignment) as server:
        session = assignment.open_session(clock)
        _check_unfinished(session, assignment)
        if assignment.session is not None:
            # Whoever killed its last root may have killed the janitor too.
            await repair(await trio.to_thread.run_sync(lambda: [*check_machine(session)]), lambda _: None)
        await start_team_record(session, assignment.team, clock)
        _redirect_stderr(session)
        set_title(f"coterie root {session.id}")
        settings, user = assignment.settings, viewer.prompter if assignment.can_ask else None
        async with open_root(
            session,
            budget=session.budget_usd,
            server=server,
            user=user,
            asks_later=assignment.asks_later,
            agents=settings.agents,
            mcp=None if assignment.is_bare or assignment.chore is not None else settings.mcp,
        ) as root:
            viewer.send(SessionOpened(session=session.id))
            outcome = await _run_lead(root, assignment, viewer)
    if outcome is not None and outcome.failure is not None:
        return outcome.failure
    return SessionEnded(
        is_done=outcome is not None and outcome.end == "done",
        reason="It was stopped." if outcome is None else outcome.summary,
    )


async def _run_lead(root: SessionRoot, assignment: SessionRequest, viewer: LaunchClient) -> AgentOutcome | None:
    """What became of the lead; None if it was stopped with everything else."""
    outcome: AgentOutcome | None = None
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_signals, signals, nursery.cancel_scope.cancel)
            nursery.start_soon(viewer.listen, root, nursery.cancel_scope.cancel)
            outcome = await root.run(lead_spec(assignment))
            nursery.cancel_scope.cancel()
    return outcome


async def _watch_signals(signals: AsyncIterator[int], stop: Callable[[], None]) -> None:
    async for _ in signals:
        stop()


@asynccontextmanager
async def _open_api_server(assignment: SessionRequest) -> AsyncIterator[str | None]:
    if assignment.script is None:
        yield None
        return
    async with open_api_server(Path(assignment.script)) as server:
        yield server.url


def _check_unfinished(session: SessionDirectory, assignment: SessionRequest) -> None:
    is_to_go_on = assignment.session is not None and assignment.chore is None and not assignment.task
    if is_to_go_on and read_overview(session).reason == "completed":
        raise ConfigInvalid("session", f"{session.id} has ended; say what to do next to go on")


def _redirect_stderr(session: SessionDirectory) -> None:
    """Write what goes wrong into the session's directory: a terminal may be gone, or somebody else's, by then."""
    descriptor = os.open(session.directory / ROOT_LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.dup2(descriptor, sys.stderr.fileno())
    os.close(descriptor)


def _startup_failure(group: BaseExceptionGroup[Exception]) -> RunFailed:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return RunFailed(reason=str(error), is_for_user=isinstance(error, ConfigInvalid | ApiServerFailed))


if __name__ == "__main__":
    main()
