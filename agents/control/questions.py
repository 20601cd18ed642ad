"""Questions on a line that have no answer yet."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

import attrs
import trio

from coterie.agents.control.word import Word
from coterie.agents.errors import ControlLost


class Answering(Protocol):
    """A word that answers a question."""

    @property
    def call(self) -> int:
        """The number of the question."""
        ...


A = TypeVar("A", bound=Answering)


@attrs.define(eq=False)
class _Question(Generic[A]):
    answer: A | None = None
    is_answered: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False)
class Questions(Generic[A]):
    """Those of one kind. Whoever reads the line passes the answers to `hear`."""

    _say: Callable[[Word], None]
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _open: dict[int, _Question[A]] = attrs.field(factory=dict, init=False)

    async def ask(self, word: Callable[[int], Word], take_back: Callable[[int], Word] | None = None) -> A:
        """Say *word*, made with the number of the question, and wait for what answers it.

        Cancelled while it waits, it says *take_back*. Raises `ControlLost`.
        """
        number, question = next(self._numbers), _Question[A]()
        self._open[number] = question
        try:
            self._say(word(number))
            await question.is_answered.wait()
        except trio.Cancelled:
            if take_back is not None:
                # Whoever listens on the line finds out that it is lost.
                with contextlib.suppress(ControlLost):
                    self._say(take_back(number))
            raise
        finally:
            del self._open[number]
        assert question.answer is not None
        return question.answer

    def hear(self, answer: A) -> None:
        """Let whoever asked go on; nobody may be left who did."""
        if (question := self._open.get(answer.call)) is not None:
            question.answer = answer
            question.is_answered.set()

    def numbers(self) -> tuple[int, ...]:
        """The questions that are open."""
        return tuple(self._open)
