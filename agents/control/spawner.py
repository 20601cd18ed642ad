"""Starting agents from an agent's process: the root does it, asked over the control socket."""

from collections.abc import Callable
from functools import partial

import attrs
import msgspec

from coterie.agents.control.questions import Questions
from coterie.agents.control.word import Word
from coterie.agents.control.words import Begun, NotBegun, Spawn
from coterie.agents.spawning import Spawned, SpawnRefused, SpawnRequest
from coterie.mailbox.bridge.frames import FRAME_LIMIT

LONGEST = FRAME_LIMIT // 2
"""Bytes of a request: what it becomes on its way must fit into a frame as well."""


@attrs.frozen
class RemoteSpawner:
    """A `Spawner`. Whoever reads the line passes the root's answers to `hear`."""

    _questions: Questions[Begun | NotBegun]

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
        return answer.spawned()

    def hear(self, answer: Begun | NotBegun) -> None:
        """Let whoever asked go on."""
        self._questions.hear(answer)
