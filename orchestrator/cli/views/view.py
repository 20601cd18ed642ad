"""Base class of views, and the loop that passes events to a view."""

import contextlib
from contextlib import AbstractContextManager

import trio

from coterie.agents.events.agent_events import Finished
from coterie.agents.events.event_reader import SessionEvent
from coterie.orchestrator.events.follower import EventFollower
from coterie.session_directory import MAIN, SessionDirectory

TICK = 0.25
"""Seconds between two ticks."""


class View:
    """Shows events; this base class shows none. Writing may raise `BrokenPipeError` if the reader has gone."""

    agent: str | None = MAIN
    """Agent whose events the view gets; None for all agents."""
    shows_approvals: bool = False
    """True if the user can answer approval requests in this view."""

    def handle(self, observed: SessionEvent) -> None:
        """Show one event."""

    def tick(self) -> None:
        """Redraw what changes with time; called every `TICK` seconds."""

    async def run(self, session: SessionDirectory) -> bool:
        """Run concurrently with the events of *session*; return True if the user left and the session continues."""
        del session
        return False

    def paused(self) -> AbstractContextManager[None]:
        """Stop writing to the terminal within the block; events that arrive are shown afterwards."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Restore the terminal. May be called twice."""


async def show_events(view: View, follower: EventFollower) -> Finished:
    """Pass the events of *follower* to *view* until the main agent finishes; return its last event.

    Cancellation loses no event: `show_remaining_events` passes the rest.
    """
    due = trio.current_time() + TICK
    while True:
        with trio.move_on_at(due):
            observed = await anext(follower)
            view.handle(observed)
            if (finished := _end(observed)) is not None:
                return finished
        if trio.current_time() >= due:
            view.tick()
            due = trio.current_time() + TICK


def show_remaining_events(view: View, follower: EventFollower) -> Finished | None:
    """Pass the events that are already there to *view*; return the main agent's last event if it has finished."""
    finished: Finished | None = None
    while (observed := follower.take_nowait()) is not None:
        view.handle(observed)
        finished = _end(observed) or finished
    return finished


def _end(observed: SessionEvent) -> Finished | None:
    event = observed.event
    return event if observed.agent == MAIN and isinstance(event, Finished) else None
