"""The root's end of one agent's control socket: it serves the agent at the gate, and hears what it does."""

from collections.abc import Callable

import attrs
import trio

from coterie.agents.control.line import Line, open_line
from coterie.agents.control.words import (
    Admit,
    Admitted,
    AgentWord,
    Began,
    Begun,
    CoolDown,
    Deliver,
    Doing,
    Left,
    NotBegun,
    Refused,
    Spawn,
    Used,
    Voided,
    agent_words,
)
from coterie.agents.errors import BudgetSpent, ControlLost
from coterie.agents.gate import Gate, Permit
from coterie.agents.spawning import Spawner, SpawnRefused
from coterie.mailbox.envelope import Envelope


@attrs.define(eq=False)
class _Call:
    """A call of the agent, from its question to its last word."""

    permit: Permit | None = None
    has_left: trio.Event = attrs.field(factory=trio.Event)
    waiting: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def leave(self) -> None:
        """The agent is done with it, or does not want it any more."""
        self.has_left.set()
        if self.permit is None:
            self.waiting.cancel()


@attrs.define(eq=False)
class Desk:
    """Serves one start of one agent; `run` ends when the agent's end of the socket does."""

    _gate: Gate
    """Closed by the caller when the agent is gone."""
    _hear: Callable[[Doing], None]
    _spawner: Spawner
    _line: Line[AgentWord] | None = attrs.field(default=None, init=False)
    _calls: dict[int, _Call] = attrs.field(factory=dict, init=False)

    async def run(
        self, stream: trio.SocketStream, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Talk over *stream* until the agent has gone; what it holds at the gate by then is counted as used up.

        Raises `ControlLost` for what is no word. Cancellation closes the socket, and with it ends the agent.
        """
        async with open_line(stream, agent_words) as self._line, trio.open_nursery() as nursery:
            task_status.started()
            while (word := await self._line.hear()) is not None:
                self._heed(word, nursery)
            nursery.cancel_scope.cancel()

    def deliver(self, envelope: Envelope) -> None:
        """Hand the agent a message that it believes. Raises `ControlLost` if it has gone."""
        if self._line is None:
            raise ControlLost("the agent has not begun")
        self._line.say(Deliver.of(envelope))

    def _heed(self, word: AgentWord, nursery: trio.Nursery) -> None:
        match word:
            case Admit():
                call = self._calls[word.call] = _Call()
                nursery.start_soon(self._admit, word, call)
            case Spawn():
                nursery.start_soon(self._spawn, word)
            case CoolDown():
                self._gate.cool_down(word.seconds)
            case Doing():
                self._hear(word)
            case Left():
                self._call(word.call).leave()
            case Began() | Used() | Voided():
                self._report(word)

    def _report(self, word: Began | Used | Voided) -> None:
        permit = self._call(word.call).permit
        if permit is None:
            raise ControlLost(f"call {word.call} was not admitted")
        match word:
            case Began():
                permit.begin()
            case Used():
                permit.settle(word.usage, is_whole=word.is_whole)
            case Voided():
                permit.void()

    def _call(self, number: int) -> _Call:
        try:
            return self._calls[number]
        except KeyError as exc:
            raise ControlLost(f"there is no call {number}") from exc

    async def _admit(self, word: Admit, call: _Call) -> None:
        assert self._line is not None
        try:
            with call.waiting:
                async with self._gate.admit(word.intent()) as call.permit:
                    self._line.say(Admitted(call=word.call))
                    await call.has_left.wait()
        except BudgetSpent as exc:
            self._line.say(Refused.of(word.call, exc))
            await call.has_left.wait()
        finally:
            del self._calls[word.call]

    async def _spawn(self, word: Spawn) -> None:
        assert self._line is not None
        try:
            spawned = await self._spawner.spawn(word.request())
        except SpawnRefused as exc:
            self._line.say(NotBegun(call=word.call, reason=exc.reason))
        else:
            self._line.say(Begun.of(word.call, spawned))
