"""Whoever started the root and looks at it: is asked, may interrupt, may end it, and may leave."""

import contextlib
from collections.abc import Callable

import attrs

from coterie.agents.control.asker import RemoteAsker
from coterie.agents.control.asking_words import Answered
from coterie.agents.control.line import Line
from coterie.agents.control.word import Word
from coterie.agents.errors import ControlLost
from coterie.orchestrator.root import Root
from coterie.orchestrator.root_process.words import End, Interrupt, Leave, ViewerWord


@attrs.frozen
class Viewer:
    """The root's end of the line to it."""

    asker: RemoteAsker
    _line: Line[ViewerWord]

    @classmethod
    def on(cls, line: Line[ViewerWord]) -> "Viewer":
        """Whoever is at the other end of *line*."""
        return cls(RemoteAsker.over(line.say), line)

    def tell(self, word: Word) -> None:
        """Let it know; nobody may be there any more to hear it."""
        with contextlib.suppress(ControlLost):
            self._line.say(word)

    async def listen(self, root: Root, stop: Callable[[], None]) -> None:
        """Heed what it says of *root* until it leaves. If it goes without a word, or says what is none, *stop*."""
        try:
            await self._listen(root, stop)
        except ControlLost:
            stop()
        finally:
            self.asker.leave()

    async def _listen(self, root: Root, stop: Callable[[], None]) -> None:
        while (word := await self._line.hear()) is not None:
            match word:
                case Interrupt():
                    root.interrupt_lead()
                case End():
                    root.hurry()
                    stop()
                case Answered():
                    self.asker.hear(word)
                case Leave():
                    return
        raise ControlLost("the viewer has gone")
