"""Base class of the views of a run, and the loop that gives them events."""

import contextlib
from contextlib import AbstractContextManager

import trio

from coterie.agents.events.agent_events import Finished
from coterie.agents.events.event_reader import SessionEvent
from coterie.orchestrator.events.follower import EventFollower
from coterie.session_directory import MAIN, SessionDirectory

TICK = 0.25
"""Seconds between two ticks of a view."""


class View:
    """Shows events; this one shows none. Writing may raise `BrokenPipeError` when nobody reads any more."""

    agent: str | None = MAIN
    """Whose events it wants; None for all."""
    shows_approvals: bool = False
    """Whether the user sees there what waits for an answer, and gives it."""

    def handle(self, observed: SessionEvent) -> None:
        """Show one event."""

    def tick(self) -> None:
        """A moment has passed: show what changes with time alone."""

    async def run(self, session: SessionDirectory) -> bool:
        """Run beside the events of *session*; whether the user wants to leave it, which goes on then."""
        del session
        return False

    def paused(self) -> AbstractContextManager[None]:
        """Leave the terminal alone within the block; what happens meanwhile is shown afterwards."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Leave the terminal as it was found. May be called twice."""


async def show_events(view: View, follower: EventFollower) -> Finished:
    """Give *view* the events of *follower* until the main agent's run has finished; how it did.

    Cancellation loses no event: `show_remaining_events` has them.
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
    """Give *view* what is there already: the last events of a run; how the main agent's finished, if they say so."""
    finished: Finished | None = None
    while (observed := follower.take_nowait()) is not None:
        view.handle(observed)
        finished = _end(observed) or finished
    return finished


def _end(observed: SessionEvent) -> Finished | None:
    event = observed.event
    return event if observed.agent == MAIN and isinstance(event, Finished) else None
