"""An event as a reader sees it: what an agent told, or what it recorded, with the session it happened in."""

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec

from coterie.agents.conversation.segments import Role
from coterie.agents.events import EVENTS, VERSION, AnyEvent, Event
from coterie.agents.usage import Usage


class MessageRecorded(Event, frozen=True, kw_only=True, tag="message"):
    """A message is in the transcript."""

    role: Role
    content: list[dict[str, Any]]
    """Its blocks, as the API has them."""


class ReplyRecorded(Event, frozen=True, kw_only=True, tag="replied"):
    """A model call was answered: what it used."""

    turn: int
    message_id: str
    request_id: str | None
    stop_reason: str
    usage: Usage
    cost_usd: str
    """Dollars, exact, as a decimal number."""
    max_tokens: int
    seconds: float
    first_byte: float
    attempts: int
    is_taken: bool
    """False for a reply that was cut off and is asked for again."""


class MailDelivered(Event, frozen=True, kw_only=True, tag="delivered"):
    """Mail of other agents is in the message that was recorded last."""

    ids: list[str]


class EpochBegan(Event, frozen=True, kw_only=True, tag="epoch"):
    """Earlier parts of the conversation were rewritten."""

    epoch: int
    kept: int
    """Segments of the conversation that stayed as they were."""
    messages: int
    """How many there are now."""


class LineUnreadable(Event, frozen=True, kw_only=True, tag="unreadable"):
    """A line of a log is not what was written."""

    file: str
    """Within the session's directory."""
    line: int
    reason: str


PRESENTED: tuple[type[Event], ...] = (MessageRecorded, ReplyRecorded, MailDelivered, EpochBegan, LineUnreadable)
"""What a reader makes of transcripts and of damage; no process writes these to its event log."""

_KINDS = frozenset(kind.__struct_config__.tag for kind in EVENTS)


class _Head(msgspec.Struct):
    v: int
    at: float
    agent: str
    kind: str


_anything = msgspec.json.Decoder(dict[str, Any])


@attrs.frozen(kw_only=True)
class Observed:
    """One event of a session."""

    session: str
    agent: str
    at: float
    """Seconds since 1970; 0 where none was recorded."""
    kind: str
    event: Event | None
    """What it says; None for a kind or a version that this program does not know."""
    members: Mapping[str, Any]
    """All of it as JSON, also what this program does not know."""

    @property
    def line(self) -> bytes:
        """The event as a line of JSON."""
        return msgspec.json.encode(self.members) + b"\n"


def observe(event: Event, *, session: str, agent: str, at: float) -> Observed:
    """An event that stands in no event log."""
    told = msgspec.to_builtins(event)
    members = {"v": VERSION, "at": at, "session": session, "agent": agent, **told}
    return Observed(session=session, agent=agent, at=at, kind=told["kind"], event=event, members=members)


def read_told(line: bytes, *, session: str) -> Observed:
    """The event on a line of an event log. Raises `ValueError` for a line that is not as it was written."""
    try:
        told = _anything.decode(line)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    head = msgspec.convert(told, _Head)
    is_known = head.kind in _KINDS and head.v == VERSION
    event: Event | None = msgspec.convert(told, AnyEvent) if is_known else None
    members = {"v": head.v, "at": head.at, **told, "session": session}
    return Observed(session=session, agent=head.agent, at=head.at, kind=head.kind, event=event, members=members)
