"""What a view is, and how it is kept in step with a run."""

import contextlib
from contextlib import AbstractContextManager

import trio

from coterie.agents.events import Finished
from coterie.orchestrator.events.following import Follower
from coterie.orchestrator.events.observed import Observed
from coterie.orchestrator.session import MAIN, Session

TICK = 0.25
"""Seconds between two ticks of a view."""


class View:
    """Shows events; this one shows none. Writing may raise `BrokenPipeError` when nobody reads any more."""

    agent: str | None = MAIN
    """Whose events it wants; None for all."""
    shows_approvals: bool = False
    """Whether the user sees there what waits for an answer, and gives it."""

    def take(self, observed: Observed) -> None:
        """Show one event."""

    def tick(self) -> None:
        """A moment has passed: show what changes with time alone."""

    async def attend(self, session: Session) -> bool:
        """Run beside the events of *session*; whether the user wants to leave it, which goes on then."""
        del session
        return False

    def paused(self) -> AbstractContextManager[None]:
        """Leave the terminal alone within the block; what happens meanwhile is shown afterwards."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Leave the terminal as it was found. May be called twice."""


async def show(view: View, follower: Follower) -> Finished:
    """Give *view* the events of *follower* until the main agent's run has finished; how it did.

    Cancellation loses no event: `show_rest` has them.
    """
    due = trio.current_time() + TICK
    while True:
        with trio.move_on_at(due):
            observed = await anext(follower)
            view.take(observed)
            if (finished := _end(observed)) is not None:
                return finished
        if trio.current_time() >= due:
            view.tick()
            due = trio.current_time() + TICK


def show_rest(view: View, follower: Follower) -> Finished | None:
    """Give *view* what is there already: the last events of a run; how the main agent's finished, if they say so."""
    finished: Finished | None = None
    while (observed := follower.take_nowait()) is not None:
        view.take(observed)
        finished = _end(observed) or finished
    return finished


def _end(observed: Observed) -> Finished | None:
    event = observed.event
    return event if observed.agent == MAIN and isinstance(event, Finished) else None
