"""Asking an agent's process to compact its conversation: the question goes over its line, and so does the answer."""

from collections.abc import Callable
from functools import partial

import attrs

from coterie.agents.compaction.plan import Pivot
from coterie.agents.control.compaction_words import Compact, Compaction, NotCompacted
from coterie.agents.control.questions import Questions
from coterie.agents.control.word import Word
from coterie.agents.errors import ControlLost

GONE = "it has ended before that was done"


@attrs.define(eq=False)
class Compactor:
    """Asks one agent's process. Whoever reads the line passes the answers to `hear`. Several may ask at once."""

    _questions: Questions[Compaction | NotCompacted]
    _is_there: bool = attrs.field(default=True, init=False)

    @classmethod
    def over(cls, say: Callable[[Word], None]) -> "Compactor":
        """One that asks by *say*."""
        return cls(Questions(say))

    async def compact(self, pivot: Pivot | None) -> Compaction | NotCompacted:
        """Wait for the agent's answer. Cancelled, the agent is compacted all the same. Raises `ControlLost`."""
        if not self._is_there:
            raise ControlLost("the agent has gone")
        return await self._questions.ask(partial(Compact.of, pivot=pivot))

    def hear(self, answer: Compaction | NotCompacted) -> None:
        """Let whoever asked go on."""
        self._questions.hear(answer)

    def leave(self) -> None:
        """The agent answers no more."""
        self._is_there = False
        for number in self._questions.numbers():
            self.hear(NotCompacted(call=number, reason=GONE))
