"""Messages between a root and the client that launched it."""

import msgspec

from coterie.agents.root_link.approval_messages import PromptUser
from coterie.agents.root_link.messages import RunFailed
from coterie.agents.root_link.wire_format import Frame, WireMessage


class SessionOpened(WireMessage, tag="opened", frozen=True):
    """The session is open, and its lead is about to be started."""

    session: str


class SessionEnded(WireMessage, tag="over", frozen=True):
    """The lead and all other processes of the session have ended."""

    is_done: bool
    """True if the lead's process ended with status 0; the result of the task is an event."""
    reason: str = ""
    """Reason if `is_done` is false."""


class InterruptTurn(WireMessage, tag="interrupt", frozen=True):
    """Cancel the lead's current turn."""


class EndSession(WireMessage, tag="end", frozen=True):
    """Kill all agents and end the session immediately."""


class Detach(WireMessage, tag="leave", frozen=True):
    """The client detaches; the session continues without prompts."""


RootMessage = SessionOpened | SessionEnded | PromptUser | RunFailed
ClientMessage = InterruptTurn | EndSession | Detach

root_message_decoder: msgspec.json.Decoder[Frame[RootMessage]] = msgspec.json.Decoder(Frame[RootMessage])
client_message_decoder: msgspec.json.Decoder[Frame[ClientMessage]] = msgspec.json.Decoder(Frame[ClientMessage])
