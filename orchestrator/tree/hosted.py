"""Agents that are tasks of this process: each has a line of its own to the root, and fails alone."""

import contextlib
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import attrs
import trio

from coterie.agents.control.station import GuestWord, Station, open_station_on
from coterie.agents.control.subline import Subline, Sublines
from coterie.agents.control.words import Over, Relayed, RootWord, RunHere, Signal, root_words
from coterie.agents.errors import ControlLost
from coterie.orchestrator.tree.duty import Duty
from coterie.orchestrator.tree.failures import first_failure

FAILED = 1
"""The status of an agent that could not begin, or could not tell its parent what came of the task."""
LEAVING = 5.0
"""Seconds that those who have done their work may take to end when who started them does."""


class Interruptible(Protocol):
    """Who can be told to end its turn: an agent."""

    def interrupt(self) -> None:
        """End the turn that is under way."""
        ...


Heeding = Callable[[Interruptible], AbstractAsyncContextManager[None]]
"""Lets the agent's turn be ended from outside, within the block."""
Life = Callable[[Duty, Station, Heeding], Awaitable[int]]
"""Does the duty of one agent; what it returns is the status. The root hears why it is not 0."""


@attrs.define(eq=False)
class _Guest:
    """One agent here."""

    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    has_worked: bool = False
    _agent: Interruptible | None = None

    @asynccontextmanager
    async def heeding(self, agent: Interruptible) -> AsyncIterator[None]:
        """As `Heeding`."""
        self._agent = agent
        try:
            yield
        finally:
            self._agent = None
            self.has_worked = True

    def heed(self, number: int) -> None:
        """Do what the signal *number* would do to a process of its own."""
        if number == signal.SIGKILL:
            self.scope.cancel()
        elif self._agent is not None:
            self._agent.interrupt()


@attrs.define(eq=False)
class _Hosting:
    """The agents that one agent has started in its process."""

    _station: Station
    _life: Life
    _nursery: trio.Nursery
    _lines: Sublines[RootWord]
    _guests: dict[int, _Guest] = attrs.field(factory=dict, init=False)
    _is_leaving: bool = attrs.field(default=False, init=False)

    def hear(self, word: GuestWord) -> None:
        """As `Station.hosting`."""
        match word:
            case RunHere() if self._is_leaving:
                self._station.say(Over(line=word.line, status=-signal.SIGKILL))
            case RunHere():
                guest = self._guests[word.line] = _Guest()
                self._nursery.start_soon(self._run, word, guest, self._lines.open(word.line))
            case Relayed():
                self._lines.hear(word)
            case Signal():
                if (named := self._guests.get(word.line)) is not None:  # else it has just ended
                    named.heed(word.number)

    def leave(self) -> None:
        """End all who are still at work, and give the others time to end by themselves."""
        self._is_leaving = True
        self._nursery.cancel_scope.deadline = trio.current_time() + LEAVING
        for guest in self._guests.values():
            if not guest.has_worked:
                guest.scope.cancel()

    async def _run(self, word: RunHere, guest: _Guest, line: Subline[RootWord]) -> None:
        """Own one agent from its start until nothing of it is left, and say so; an error in it is its own."""
        status = -signal.SIGKILL
        try:
            with guest.scope:
                status = await self._live(word, guest, line)
        except ControlLost:
            status = FAILED  # it cannot be talked to
        finally:
            del self._guests[word.line]
            self._lines.close(word.line)
            # Whoever listens for the whole process finds out that the root has gone.
            with contextlib.suppress(ControlLost):
                self._station.say(Over(line=word.line, status=status))

    async def _live(self, word: RunHere, guest: _Guest, line: Subline[RootWord]) -> int:
        status = FAILED
        async with open_station_on(line) as station:
            try:
                status = await self._life(Duty.from_bytes(bytes(word.duty)), station, guest.heeding)
            except* Exception as group:  # noqa: BLE001 - for this agent it is the outermost frame
                traceback.print_exception(group, file=sys.stderr)
                with contextlib.suppress(ControlLost):  # raised by the station itself
                    station.give_up(_in_words(group), is_for_user=False)
        return status


@asynccontextmanager
async def open_hosting(station: Station, life: Life) -> AsyncIterator[None]:
    """Let the root run agents in this process, each by *life*, below the one of *station*, until the block ends.

    Then those who have done their work may end by themselves, and the others are cancelled; none is left. Whatever is
    raised in one of them is its failure alone.
    """
    async with trio.open_nursery() as nursery:
        hosting = _Hosting(station, life, nursery, Sublines(station.say, root_words))
        station.hosting = hosting.hear
        try:
            yield
        finally:
            hosting.leave()
    station.hosting = None


def _in_words(group: BaseException) -> str:
    return " ".join("".join(traceback.format_exception_only(first_failure(group))).split())
