"""Base class of the views that show a session to the user, and the loop that passes events to a view."""

import contextlib
from contextlib import AbstractContextManager

import trio

from coterie.agents.events.agent_events import Finished
from coterie.agents.events.event_reader import SessionEvent
from coterie.orchestrator.events.follower import EventFollower
from coterie.session_directory import MAIN, SessionDirectory

TICK = 0.25
"""Seconds between two calls of `View.tick`."""


class View:
    """Base class of views; its methods show nothing. Subclasses may raise `BrokenPipeError` if stdout is closed."""

    agent: str | None = MAIN
    """Name of the agent whose events the view gets; None for the events of all agents."""
    shows_approvals: bool = False
    """True if the user can approve or reject requests of agents in this view."""

    def handle(self, observed: SessionEvent) -> None:
        """Show *observed*, the next event of the session, to the user."""

    def tick(self) -> None:
        """Redraw content that changes with time, such as a duration; called every `TICK` seconds."""

    async def run(self, session: SessionDirectory) -> bool:
        """Handle keys in a task beside the event loop; return True if the user left the view of a running session."""
        del session
        return False

    def paused(self) -> AbstractContextManager[None]:
        """Return a context manager; within its block the view writes nothing and queues events, for use by a prompt."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Stop drawing and restore the terminal. May be called several times."""


async def show_events(view: View, follower: EventFollower) -> Finished:
    """Pass the events of *follower* to *view* until the lead (first agent) finishes; return the lead's last event.

    Calls `View.tick` in between. Cancellation loses no event: `show_remaining_events` passes the events that are left.
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
    """Pass all events that can be read now to *view*; return the lead's `Finished` event if it is among them."""
    finished: Finished | None = None
    while (observed := follower.take_nowait()) is not None:
        view.handle(observed)
        finished = _end(observed) or finished
    return finished


def _end(observed: SessionEvent) -> Finished | None:
    event = observed.event
    return event if observed.agent == MAIN and isinstance(event, Finished) else None
