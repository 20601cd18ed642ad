"""Asking the user from a process that has no terminal: the question goes over a line, and so does the answer."""

from collections.abc import Callable
from functools import partial

import attrs

from coterie.agents.control.asking_words import Answered, Ask, TakeBack
from coterie.agents.control.questions import Questions
from coterie.agents.control.word import Word
from coterie.agents.permissions import Answer, Question, Refusal

NOBODY = "Nobody is there any more who could be asked."


@attrs.define(eq=False)
class RemoteAsker:
    """An `Asker`. Whoever reads the line passes the answers to `hear`. Several may ask at once."""

    _questions: Questions[Answered]
    _is_there: bool = attrs.field(default=True, init=False)

    @classmethod
    def over(cls, say: Callable[[Word], None]) -> "RemoteAsker":
        """One that asks by *say*."""
        return cls(Questions(say))

    async def ask(self, question: Question) -> Answer:
        """As `Asker.ask`. Cancellation takes the question back. Raises `ControlLost`."""
        if not self._is_there:
            return Refusal(NOBODY)
        word = partial(Ask.of, question=question)
        return (await self._questions.ask(word, lambda number: TakeBack(call=number))).answer()

    def hear(self, answer: Answered) -> None:
        """Let whoever asked go on."""
        self._questions.hear(answer)

    def leave(self) -> None:
        """Nobody answers any more: what was asked, and what will be, is refused."""
        self._is_there = False
        for number in self._questions.numbers():
            self.hear(Answered.of(number, Refusal(NOBODY)))
