"""Entry point of a session's root process. Arguments: file descriptors of the client's socket and of the request."""

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
from coterie.errors import ConfigInvalid, first_exception
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.fault_points import inject_faults
from coterie.orchestrator.control.requests import SessionEnded, SessionOpened, client_message_decoder
from coterie.orchestrator.doctor.checks import check_machine, repair
from coterie.orchestrator.processes.api_server_process import ApiServerFailed, open_api_server
from coterie.orchestrator.processes.linux import set_title
from coterie.orchestrator.processes.process_start import StartFailed
from coterie.orchestrator.root.root import LaunchClient, SessionRoot, lead_spec, open_root
from coterie.orchestrator.session.overview import read_overview
from coterie.orchestrator.session.session_request import SessionRequest
from coterie.orchestrator.supervisor.agent_status import ROOT_NAME, AgentOutcome
from coterie.orchestrator.teams.team_record import start_team_record
from coterie.session_directory import SessionDirectory

EXPECTED_ERRORS = (ConfigInvalid, ApiServerFailed, StartFailed, MailboxError, OSError)
"""Errors that end the root and whose text is sent to the client that launched it. Other exceptions are bugs."""


def main() -> None:
    """Read the session request from the second descriptor, and run the root process of that session to its end."""
    client_descriptor, request_descriptor = (int(argument) for argument in sys.argv[1:])
    with os.fdopen(request_descriptor, "rb") as file:
        request = SessionRequest.from_bytes(file.read())
    with inject_faults(ROOT_NAME):
        trio.run(_serve, request, socket.socket(fileno=client_descriptor))


async def _serve(request: SessionRequest, sock: socket.socket) -> None:
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
    async with open_channel(stream, client_message_decoder) as channel:
        client = LaunchClient(channel)
        try:
            client.send(await _run(request, client))
        except* EXPECTED_ERRORS as group:
            error = first_exception(group)
            client.send(RunFailed(reason=str(error), is_for_user=isinstance(error, ConfigInvalid | ApiServerFailed)))


async def _run(request: SessionRequest, client: LaunchClient) -> SessionEnded | RunFailed:
    clock = Clock.from_environment()
    await trio.to_thread.run_sync(check_sandbox, request.settings, request.project)
    hosts_from_settings(request.settings)  # invalid hosts are refused here once, not by each agent
    # Before any file is written: a session needs its model.
    async with _open_api_server(request) as server:
        session = request.open_session(clock)
        if request.session is not None:
            if request.chore is None and not request.task and read_overview(session).reason == "completed":
                raise ConfigInvalid("session", f"{session.id} has completed its task; give a new task to resume it")
            # The cleanup daemon may have been killed together with the last root.
            await repair(await trio.to_thread.run_sync(lambda: [*check_machine(session)]))
        await start_team_record(session, request.team, clock)
        _redirect_stderr(session)
        set_title(f"coterie root {session.id}")
        settings, user = request.settings, client.prompter if request.can_ask else None
        async with open_root(
            session,
            budget=session.budget_usd,
            server=server,
            user=user,
            asks_later=request.asks_later,
            agents=settings.agents,
            mcp=None if request.is_bare or request.chore is not None else settings.mcp,
        ) as root:
            client.send(SessionOpened(session=session.id))
            outcome = await _run_lead(root, request, client)
    if outcome is not None and outcome.failure is not None:
        return outcome.failure
    return SessionEnded(
        is_done=outcome is not None and outcome.end == "done",
        reason="The session was stopped." if outcome is None else outcome.summary,
    )


async def _run_lead(root: SessionRoot, request: SessionRequest, client: LaunchClient) -> AgentOutcome | None:
    """Run the lead (first agent of the session) and return its outcome; None if a signal or the client stopped it."""
    outcome: AgentOutcome | None = None
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch_signals, signals, nursery.cancel_scope.cancel)
            nursery.start_soon(client.listen, root, nursery.cancel_scope.cancel)
            outcome = await root.run(lead_spec(request))
            nursery.cancel_scope.cancel()
    return outcome


async def _watch_signals(signals: AsyncIterator[int], stop: Callable[[], None]) -> None:
    async for _ in signals:
        stop()


@asynccontextmanager
async def _open_api_server(request: SessionRequest) -> AsyncIterator[str | None]:
    if request.script is None:
        yield None
        return
    async with open_api_server(Path(request.script)) as server:
        yield server.url


def _redirect_stderr(session: SessionDirectory) -> None:
    """Redirect stderr to root.log of the session, because the terminal may be closed or used otherwise later."""
    descriptor = os.open(session.directory / "root.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.dup2(descriptor, sys.stderr.fileno())
    os.close(descriptor)


if __name__ == "__main__":
    main()
