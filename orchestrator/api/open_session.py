"""Entry points of the Python API: `open_session` and `run_sync`."""

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
from coterie.orchestrator.api.live_session import LiveSession, SessionLiveness, SessionResult, count_existing
from coterie.orchestrator.api.options import SessionOptions, explicit_options, to_session_request
from coterie.orchestrator.control.launch_client import RootClient, RootEvents, open_root_client
from coterie.orchestrator.control.requests import SessionOpened
from coterie.orchestrator.session.session_request import SessionRequest
from coterie.session_directory import MAIN, SessionDirectory

ACTIVE_STATES = ("running", "waiting", "idle", "plan_pending")
"""States in which the lead (first agent of the session) accepts messages."""
NURSERIES = 2
"""Number of trio nurseries around the body of `open_session`: one in this module, one in the root connection."""


@asynccontextmanager
async def open_session(task: str = "", **options: Unpack[SessionOptions]) -> AsyncIterator[LiveSession]:
    """Start or resume a session that works on *task*, and yield its `LiveSession`; the session ends with the block.

    The block begins when the lead (first agent) accepts messages and the team has started. `LiveSession.wait` waits
    until the session ends. The end of the block, also by cancellation, stops all running agents, finally by SIGKILL;
    a `detached` session keeps running. Enter the block on the main thread. Raises `ConfigInvalid` for invalid options
    before any agent is started, and `SessionFailed` or `OSError` if the session cannot start. Exceptions from the block
    are not wrapped in an exception group.
    """
    given = explicit_options(options)
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("call open_session on the main thread: child processes die with the thread that starts them")
    request = await trio.to_thread.run_sync(to_session_request, task, given)
    past = Counter[str]()
    if request.session is not None:
        past = await trio.to_thread.run_sync(count_existing, SessionDirectory.find(request.session).directory)
    with _unwrap_groups():
        async with open_root_client(request) as client:
            session, liveness = await _wait_until_opened(request, client), SessionLiveness()
            if given.get("detached"):
                with suppress(ControlLost):  # the root has ended, which `_listen` reports
                    client.detach()
            async with trio.open_nursery() as nursery:
                events = RootEvents(client, given.get("on_question"))
                nursery.start_soon(_listen, events, client, liveness, nursery)
                live = LiveSession(session, liveness, client, past)
                await _wait_until_ready(live, request)
                try:
                    yield live
                finally:
                    liveness.is_detached = client.is_detached
                    liveness.end(None)
                nursery.cancel_scope.cancel()


def run_sync(task: str = "", **options: Unpack[SessionOptions]) -> SessionResult:
    """Run *task* in a session, block until the session has ended, and return its result; for synchronous programs.

    Raises the same exceptions as `open_session` and `LiveSession.wait`.
    """
    result: SessionResult | None = None

    async def run() -> None:
        nonlocal result
        async with open_session(task, **options) as session:
            result = await session.wait()

    trio.run(run)
    assert result is not None, "the block sets the result or raises"
    return result


async def _listen(events: RootEvents, client: RootClient, liveness: SessionLiveness, nursery: trio.Nursery) -> None:
    """Receive messages until the root (supervisor) ends, then call `liveness.end`; *nursery* runs prompt handlers."""
    outcome = await events.run(nursery)
    client.is_detached = False  # the root has ended
    liveness.end(outcome)


async def _wait_until_opened(request: SessionRequest, client: RootClient) -> SessionDirectory:
    """Return the session's directory once the root (supervisor) opened it. Raises `ConfigInvalid`, `SessionFailed`."""
    reason = "its root process ended unexpectedly before it opened the session; try again"
    with suppress(ControlLost):
        message = await client.receive()
        if isinstance(message, SessionOpened):
            return SessionDirectory.find(message.session)
        if isinstance(message, RunFailed):
            reason = message.reason
            if message.is_for_user:
                source, _, problem = reason.removeprefix("the embedded server did not start: ").partition(": ")
                raise ConfigInvalid(source, problem)
    raise SessionFailed(request.session or "(none)", reason)


async def _wait_until_ready(live: LiveSession, request: SessionRequest) -> None:
    """Return when the lead (first agent) accepts messages and new members started or failed, or the session ended."""
    missing = {MAIN} if request.team is None else {MAIN, *(member.name for member in request.team.members)}
    async with live.events() as events:
        async for observed in events:
            match observed.event:
                case AgentChanged(name=name, state=state) if name != MAIN or state in ACTIVE_STATES:
                    missing.discard(name)
                case LayerFailed(layer="team", reason=reason):  # the text begins with the name of the member
                    missing.discard(reason.partition(" ")[0])
            if not missing:
                return


@contextmanager
def _unwrap_groups() -> Iterator[None]:
    """Unwrap a single exception from the exception groups of this package's nurseries, but not from the caller's."""
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
