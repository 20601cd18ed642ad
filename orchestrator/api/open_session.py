"""Opens a session from a Python program: starts a root and ends it with the block."""

import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Unpack

import trio

from coterie.agents.errors import ControlLost
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.events.root_events import AgentChanged
from coterie.agents.root_link.messages import RunFailed
from coterie.errors import ConfigInvalid
from coterie.orchestrator.api.errors import SessionFailed
from coterie.orchestrator.api.live_session import LiveSession, SessionLiveness, count_existing
from coterie.orchestrator.api.options import SessionOptions, explicit_options, to_session_request
from coterie.orchestrator.api.session_result import SessionResult
from coterie.orchestrator.control.launch_client import RootClient, RootEvents, open_root_client
from coterie.orchestrator.control.launch_protocol import SessionOpened
from coterie.orchestrator.session.session_request import SessionRequest
from coterie.session_directory import MAIN, SessionDirectory

ACTIVE_STATES = ("running", "waiting", "idle", "plan_pending")
"""States of a lead that can be told something."""
NO_SERVER = "the embedded server did not start: "
NURSERIES = 2
"""Around the block of a session: this module's, and that of the line to the root."""


@asynccontextmanager
async def open_session(task: str = "", **options: Unpack[SessionOptions]) -> AsyncIterator[LiveSession]:
    """Run *task* with a lead, and its team if it has one, until the block ends.

    The block begins when the lead, and each member of the team, is there to be written to. `LiveSession.wait` says when
    the task is done. The end of the block, cancelled or not, ends all that is still at work: agents are asked, waited
    for, and killed; a `detached` session goes on. Enter it on the main thread. Raises `ConfigInvalid` for what cannot
    be used, before any agent is started, and `SessionFailed` and `OSError` if the session cannot begin. What is raised
    in the block leaves it as it is, in no group.
    """
    wanted = explicit_options(options)
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("open_session needs the main thread: the processes of a session die with who started them")
    assignment = await trio.to_thread.run_sync(to_session_request, task, wanted)
    past = Counter[str]()
    if assignment.session is not None:
        past = await trio.to_thread.run_sync(count_existing, SessionDirectory.find(assignment.session).directory)
    with _unwrap_groups():
        async with open_root_client(assignment) as host:
            session, life = await _wait_until_opened(assignment, host), SessionLiveness()
            if wanted.get("detached"):
                with suppress(ControlLost):  # it has ended, as whoever listens finds out
                    host.detach()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_listen, RootEvents(host, wanted.get("on_question")), host, life, nursery)
                live = LiveSession(session, life, host, past)
                await _wait_until_ready(live, assignment)
                try:
                    yield live
                finally:
                    life.is_detached = host.is_detached
                    life.end(None)
                nursery.cancel_scope.cancel()


def run_sync(task: str = "", **options: Unpack[SessionOptions]) -> SessionResult:
    """Run *task* to its end, as `open_session` does, from a program that is not async.

    Raises what `open_session` and `LiveSession.wait` raise.
    """
    result: SessionResult | None = None

    async def run() -> None:
        nonlocal result
        async with open_session(task, **options) as session:
            result = await session.wait()

    trio.run(run)
    assert result is not None, "the block ends with it, or raises"
    return result


async def _listen(hearing: RootEvents, host: RootClient, life: SessionLiveness, nursery: trio.Nursery) -> None:
    """Hear the root to its end; questions are answered in *nursery*, whatever the program raises there."""
    outcome = await hearing.run(nursery)
    host.is_detached = False  # there is nothing that could go on
    life.end(outcome)


async def _wait_until_opened(assignment: SessionRequest, host: RootClient) -> SessionDirectory:
    """The session, once its root is there. Raises `ConfigInvalid` and `SessionFailed`."""
    reason = "its root has ended before it had begun"
    with suppress(ControlLost):
        word = await host.receive()
        if isinstance(word, SessionOpened):
            return SessionDirectory.find(word.session)
        if isinstance(word, RunFailed):
            reason = word.reason
            if word.is_for_user:
                source, _, what = reason.removeprefix(NO_SERVER).partition(": ")
                raise ConfigInvalid(source, what)
    raise SessionFailed(assignment.session or "(none)", reason)


async def _wait_until_ready(live: LiveSession, assignment: SessionRequest) -> None:
    """Return when the lead, and its team, if it has just got one, can be told something, or the session is over."""
    missing = {MAIN} if assignment.team is None else {MAIN, *(member.name for member in assignment.team.members)}
    async with live.events() as events:
        async for observed in events:
            match observed.event:
                case AgentChanged(name=name, state=state) if name != MAIN or state in ACTIVE_STATES:
                    missing.discard(name)
                case LayerFailed(layer="team", reason=reason):  # it begins with whom it is about
                    missing.discard(reason.partition(" ")[0])
            if not missing:
                return


@contextmanager
def _unwrap_groups() -> Iterator[None]:
    """Take what is raised alone out of the groups that our nurseries put it into, and out of no others."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        for _ in range(NURSERIES):
            if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
                error = error.exceptions[0]
        context = error.__context__
        try:
            raise error
        finally:
            error.__context__ = context
