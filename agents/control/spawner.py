"""Starting agents from an agent's process: the root does it, asked over the control socket."""

import itertools
from collections.abc import Callable, Iterator

import attrs
import trio

from coterie.agents.control.words import Begun, NotBegun, Spawn, Word
from coterie.agents.spawning import Spawned, SpawnRefused, SpawnRequest


@attrs.define(eq=False)
class _Question:
    answer: Begun | NotBegun | None = None
    is_answered: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False)
class RemoteSpawner:
    """A `Spawner`. Whoever reads the line passes the root's answers to `hear`."""

    _say: Callable[[Word], None]
    _calls: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _open: dict[int, _Question] = attrs.field(factory=dict, init=False)

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """As `Spawner.spawn`. Cancelled, the agent is started all the same, and its report comes as mail.

        Raises `ControlLost` too.
        """
        call, question = next(self._calls), _Question()
        self._open[call] = question
        try:
            self._say(Spawn.of(call, request))
            await question.is_answered.wait()
        finally:
            del self._open[call]
        assert question.answer is not None
        if isinstance(question.answer, NotBegun):
            raise SpawnRefused(question.answer.reason)
        return question.answer.spawned()

    def hear(self, answer: Begun | NotBegun) -> None:
        """Let whoever asked go on; nobody may be left who did."""
        if (question := self._open.get(answer.call)) is not None:
            question.answer = answer
            question.is_answered.set()
