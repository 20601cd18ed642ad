"""The program of a session's root; its arguments are two descriptors: a line to who started it, and its assignment."""

import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from coterie.agents.control.line import open_line
from coterie.agents.control.words import Unable
from coterie.agents.errors import ConfigInvalid
from coterie.clock import Clock
from coterie.mailbox.errors import MailboxError
from coterie.orchestrator.doctor import examine_machine, mend
from coterie.orchestrator.embedded import ServerFailed, open_server
from coterie.orchestrator.injected_faults import injected_faults
from coterie.orchestrator.overview import look_at
from coterie.orchestrator.root import Root, open_root
from coterie.orchestrator.root_process.assignment import Assignment
from coterie.orchestrator.root_process.viewer import Viewer
from coterie.orchestrator.root_process.words import Opened, Over, viewer_words
from coterie.orchestrator.sandboxing import check_sandbox
from coterie.orchestrator.session import Session
from coterie.orchestrator.starting import StartFailed
from coterie.orchestrator.starting.kernel import set_title
from coterie.orchestrator.teams.recording import begin_team
from coterie.orchestrator.tree.announcing import ROOT
from coterie.orchestrator.tree.charge import Outcome
from coterie.orchestrator.web import hosts_of

ERRORS = "root.log"
"""In the session's directory: what its root, and nothing else, had to say."""

PLANNED = (ConfigInvalid, ServerFailed, StartFailed, MailboxError, OSError)
"""What may keep a root from its work."""


def main() -> None:
    """Be the root of one session, and exit."""
    line, assignment = (int(argument) for argument in sys.argv[1:])
    with os.fdopen(assignment, "rb") as file:
        wanted = Assignment.from_bytes(file.read())
    with injected_faults(ROOT):
        trio.run(_serve, wanted, socket.socket(fileno=line))


async def _serve(assignment: Assignment, near: socket.socket) -> None:
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(near))
    async with open_line(stream, viewer_words) as line:
        viewer = Viewer.on(line)
        try:
            viewer.tell(await _run(assignment, viewer))
        except* PLANNED as group:
            viewer.tell(_unable(group))


async def _run(assignment: Assignment, viewer: Viewer) -> Over | Unable:
    clock = Clock.from_environment()
    await trio.to_thread.run_sync(check_sandbox, assignment.settings, assignment.project)
    hosts_of(assignment.settings)  # refused here, or each agent would be
    # Before anything is written: without a model there is no session.
    async with _open_model(assignment) as server:
        session = assignment.open_session(clock)
        _check_unfinished(session, assignment)
        if assignment.session is not None:
            # Whoever killed its last root may have killed the janitor too.
            await mend(await trio.to_thread.run_sync(lambda: [*examine_machine(session)]), lambda _: None)
        await begin_team(session, assignment.team, clock)
        _keep_errors(session)
        set_title(f"coterie root {session.id}")
        settings, user = assignment.settings, viewer.asker if assignment.can_ask else None
        async with open_root(
            session,
            budget=session.budget_usd,
            server=server,
            user=user,
            asks_later=assignment.asks_later,
            agents=settings.agents,
            mcp=None if assignment.is_bare or assignment.chore is not None else settings.mcp,
        ) as root:
            viewer.tell(Opened(session=session.id))
            outcome = await _run_lead(root, assignment, viewer)
    if outcome is not None and outcome.failure is not None:
        return outcome.failure
    return Over(
        is_done=outcome is not None and outcome.end == "done",
        reason="It was stopped." if outcome is None else outcome.words,
    )


async def _run_lead(root: Root, assignment: Assignment, viewer: Viewer) -> Outcome | None:
    """What became of the lead; None if it was stopped with everything else."""
    outcome: Outcome | None = None
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_heed, signals, nursery.cancel_scope.cancel)
            nursery.start_soon(viewer.listen, root, nursery.cancel_scope.cancel)
            outcome = await root.run(assignment.order())
            nursery.cancel_scope.cancel()
    return outcome


async def _heed(signals: AsyncIterator[int], stop: Callable[[], None]) -> None:
    async for _ in signals:
        stop()


@asynccontextmanager
async def _open_model(assignment: Assignment) -> AsyncIterator[str | None]:
    if assignment.script is None:
        yield None
        return
    async with open_server(Path(assignment.script)) as server:
        yield server.url


def _check_unfinished(session: Session, assignment: Assignment) -> None:
    is_to_go_on = assignment.session is not None and assignment.chore is None and not assignment.task
    if is_to_go_on and look_at(session).reason == "completed":
        raise ConfigInvalid("session", f"{session.id} has ended; say what to do next to go on")


def _keep_errors(session: Session) -> None:
    """Write what goes wrong into the session's directory: a terminal may be gone, or somebody else's, by then."""
    descriptor = os.open(session.directory / ERRORS, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.dup2(descriptor, sys.stderr.fileno())
    os.close(descriptor)


def _unable(group: BaseExceptionGroup[Exception]) -> Unable:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return Unable(reason=str(error), is_for_user=isinstance(error, ConfigInvalid | ServerFailed))


if __name__ == "__main__":
    main()
