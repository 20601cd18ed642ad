"""Hearing the root of a session, for whoever started it: questions are answered one at a time, until its last word."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import attrs
import trio

from coterie.agents.control.asking_words import Answered, Ask, TakeBack
from coterie.agents.control.words import Unable
from coterie.agents.errors import ControlLost
from coterie.agents.permissions import Answer, Question
from coterie.orchestrator.root_process.calling import Host
from coterie.orchestrator.root_process.words import Opened, Over

LastWord = Over | Unable
"""How a root takes leave."""
OnQuestion = Callable[[Question], Awaitable[Answer]]
"""Answers a question for permission: `Once`, `ForSession` or `Refusal`."""


@attrs.define(eq=False)
class Hearing:
    """Hears one root."""

    _host: Host
    _on_question: OnQuestion | None
    """None where the root was told that nobody can be asked."""
    _opened: Callable[[str], None] = lambda _session: None
    """Told which session it is, if that is not known yet."""
    _asking: trio.Lock = attrs.field(factory=trio.Lock, init=False)
    _questions: dict[int, trio.CancelScope] = attrs.field(factory=dict, init=False)

    async def hear_out(self, nursery: trio.Nursery) -> LastWord | None:
        """The root's last word, once it is said; None if it ends without one. Questions are answered in *nursery*.

        Those that are open by then are dropped: nobody waits for the answers.
        """
        try:
            with suppress(ControlLost):
                while (word := await self._host.hear()) is not None:
                    match word:
                        case Over() | Unable():
                            return word
                        case Opened():
                            self._opened(word.session)
                        case Ask():
                            scope = self._questions[word.call] = trio.CancelScope()
                            nursery.start_soon(self._ask, word, scope)
                        case TakeBack() if word.call in self._questions:
                            self._questions[word.call].cancel()
            return None
        finally:
            for scope in self._questions.values():
                scope.cancel()

    async def _ask(self, word: Ask, scope: trio.CancelScope) -> None:
        assert self._on_question is not None, "the root was told that somebody can be asked"
        try:
            with scope:
                async with self._asking:
                    answer = await self._on_question(word.question())
                with suppress(ControlLost):
                    self._host.say(Answered.of(word.call, answer))
        finally:
            del self._questions[word.call]
