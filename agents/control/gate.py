"""The session's gate as an agent's process sees it: in another process, behind the control socket."""

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import attrs
import trio

from coterie.agents.control.gate_words import Admit, Admitted, Began, CoolDown, Left, Refused, Used, Voided
from coterie.agents.control.words import AgentWord
from coterie.agents.errors import ControlLost
from coterie.agents.gate import Intent, Permit
from coterie.agents.usage import Usage


@attrs.define(eq=False)
class _Admission:
    """A question that the root has not answered yet."""

    answer: Admitted | Refused | None = None
    is_answered: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False)
class RemotePermit:
    """The right to one call; the root hears how it goes."""

    _call: int
    _say: Callable[[AgentWord], None]

    def begin(self) -> None:
        """As `Permit.begin`."""
        self._say(Began(call=self._call))

    def settle(self, usage: Usage, *, is_whole: bool = True) -> None:
        """As `Permit.settle`."""
        self._say(Used(call=self._call, usage=usage, is_whole=is_whole))

    def void(self) -> None:
        """As `Permit.void`."""
        self._say(Voided(call=self._call))


@attrs.define(eq=False)
class RemoteGate:
    """A `Gate`. Whoever reads the line passes the root's answers to `hear`. Everything raises `ControlLost`."""

    _say: Callable[[AgentWord], None]
    _calls: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _open: dict[int, _Admission] = attrs.field(factory=dict, init=False)

    @asynccontextmanager
    async def admit(self, intent: Intent) -> AsyncIterator[Permit]:
        """As `Gate.admit`. Cancellation while waiting takes the question back."""
        call, admission = next(self._calls), _Admission()
        self._open[call] = admission
        self._say(Admit.of(call, intent))
        try:
            await admission.is_answered.wait()
            if isinstance(admission.answer, Refused):
                raise admission.answer.error()
            yield RemotePermit(call, self._say)
        finally:
            del self._open[call]
            # Whoever listens on the line ends the agent with this error; it must not take the place of another one.
            with contextlib.suppress(ControlLost):
                self._say(Left(call=call))

    def cool_down(self, seconds: float) -> None:
        """As `Gate.cool_down`, for the whole session."""
        self._say(CoolDown(seconds=seconds))

    def hear(self, answer: Admitted | Refused) -> None:
        """Let the call go on that *answer* is about; one that was taken back meanwhile needs none."""
        if (admission := self._open.get(answer.call)) is not None:
            admission.answer = answer
            admission.is_answered.set()
