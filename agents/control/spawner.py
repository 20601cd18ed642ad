"""Starting agents from an agent's process: the root does it, asked over the control socket."""

from collections.abc import Callable
from functools import partial

import attrs
import msgspec

from coterie.agents.control.questions import Questions
from coterie.agents.control.word import Word
from coterie.agents.control.words import (
    AskedToEnd,
    AskToEnd,
    AtRest,
    AwaitRest,
    Begun,
    NotBegun,
    Spawn,
    StopTask,
    TaskStopped,
)
from coterie.agents.spawning import Spawned, SpawnRefused, SpawnRequest
from coterie.mailbox.bridge.frames import FRAME_LIMIT
from coterie.mailbox.envelope import Envelope

Answer = Begun | NotBegun | TaskStopped | AskedToEnd | AtRest

LONGEST = FRAME_LIMIT // 2
"""Bytes of a request: what it becomes on its way must fit into a frame as well."""


@attrs.frozen
class RemoteSpawner:
    """A `Spawner`. Whoever reads the line passes the root's answers to `hear`."""

    _questions: Questions[Answer]

    @classmethod
    def over(cls, say: Callable[[Word], None]) -> "RemoteSpawner":
        """One that asks by *say*."""
        return cls(Questions(say))

    async def spawn(self, request: SpawnRequest) -> Spawned:
        """As `Spawner.spawn`. Cancelled, the agent is started all the same, and its report comes as mail.

        Raises `ControlLost` too.
        """
        if len(msgspec.json.encode(Spawn.of(0, request))) > LONGEST:
            raise SpawnRefused("The task is too long to be told; write it into a file, and tell the agent which.")
        answer = await self._questions.ask(partial(Spawn.of, request=request))
        if isinstance(answer, NotBegun):
            raise SpawnRefused(answer.reason)
        assert isinstance(answer, Begun)
        return answer.spawned()

    async def stop(self, name: str) -> None:
        """As `Spawner.stop`. Raises `ControlLost` too."""
        answer = await self._questions.ask(lambda call: StopTask(call=call, name=name))
        assert isinstance(answer, TaskStopped)
        if answer.refusal is not None:
            raise SpawnRefused(answer.refusal)

    async def ask_to_end(self, request: Envelope) -> None:
        """As `Spawner.ask_to_end`. Raises `ControlLost` too."""
        answer = await self._questions.ask(lambda call: AskToEnd.of(call, request))
        assert isinstance(answer, AskedToEnd)
        if answer.refusal is not None:
            raise SpawnRefused(answer.refusal)

    async def rest(self) -> None:
        """As `Spawner.rest`. Raises `ControlLost` too."""
        await self._questions.ask(lambda call: AwaitRest(call=call))

    def hear(self, answer: Answer) -> None:
        """Let whoever asked go on."""
        self._questions.hear(answer)
