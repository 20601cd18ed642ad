"""Messages between a root and the client that launched it."""

import msgspec

from coterie.agents.root_link.approval_messages import PromptUser
from coterie.agents.root_link.messages import RunFailed
from coterie.agents.root_link.wire_format import Frame, WireMessage


class SessionOpened(WireMessage, tag="opened", frozen=True):
    """The session is there, and its lead is about to be started."""

    session: str


class SessionEnded(WireMessage, tag="over", frozen=True):
    """The lead has ended, and nothing of the session is left running."""

    is_done: bool
    """Whether its process ended by itself, and well; what came of the task is an event."""
    reason: str = ""
    """Why not."""


class InterruptTurn(WireMessage, tag="interrupt", frozen=True):
    """End the turn that is under way."""


class EndSession(WireMessage, tag="end", frozen=True):
    """End everything, at once."""


class Detach(WireMessage, tag="leave", frozen=True):
    """Go on alone: nobody looks any more, and nobody can be asked."""


RootMessage = SessionOpened | SessionEnded | PromptUser | RunFailed
ClientMessage = InterruptTurn | EndSession | Detach

root_message_decoder: msgspec.json.Decoder[Frame[RootMessage]] = msgspec.json.Decoder(Frame[RootMessage])
client_message_decoder: msgspec.json.Decoder[Frame[ClientMessage]] = msgspec.json.Decoder(Frame[ClientMessage])
