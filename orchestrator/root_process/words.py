"""What the root of a session and the process that started it say to each other."""

import msgspec

from coterie.agents.control.asking_words import Answered, Ask, TakeBack
from coterie.agents.control.word import Word
from coterie.agents.control.words import Unable


class Opened(Word, tag="opened", frozen=True):
    """The session is there, and its lead is about to be started."""

    session: str


class Over(Word, tag="over", frozen=True):
    """The lead has ended, and nothing of the session is left running."""

    is_done: bool
    """Whether its process ended by itself, and well; what came of the task is an event."""
    reason: str = ""
    """Why not."""


class Interrupt(Word, tag="interrupt", frozen=True):
    """End the turn that is under way."""


class End(Word, tag="end", frozen=True):
    """End everything, at once."""


class Leave(Word, tag="leave", frozen=True):
    """Go on alone: nobody looks any more, and nobody can be asked."""


HostWord = Opened | Over | Ask | TakeBack | Unable
ViewerWord = Interrupt | End | Leave | Answered

host_words: msgspec.json.Decoder[HostWord] = msgspec.json.Decoder(HostWord)
viewer_words: msgspec.json.Decoder[ViewerWord] = msgspec.json.Decoder(ViewerWord)
