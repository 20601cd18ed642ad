"""Events of a session as readers see them, and reading an event log backwards."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import msgspec

from coterie.agents.events.agent_events import Event
from coterie.agents.events.event_log import EVENTS, VERSION, AnyEvent
from coterie.agents.events.root_events import AgentChanged
from coterie.agents.loop.model.catalog import Role
from coterie.agents.loop.model.usage import Usage
from coterie.session_directory import EVENT_LOG, SessionDirectory


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


DERIVED_EVENTS: tuple[type[Event], ...] = (MessageRecorded, ReplyRecorded, MailDelivered, EpochBegan, LineUnreadable)
"""What a reader makes of transcripts and of damage; no process writes these to its event log."""

_KINDS = frozenset(kind.__struct_config__.tag for kind in EVENTS)


class _Head(msgspec.Struct):
    v: int
    at: float
    agent: str
    kind: str


_anything = msgspec.json.Decoder(dict[str, Any])


@attrs.frozen(kw_only=True)
class SessionEvent:
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


def make_session_event(event: Event, *, session: str, agent: str, at: float) -> SessionEvent:
    """An event that stands in no event log."""
    told = msgspec.to_builtins(event)
    members = {"v": VERSION, "at": at, "session": session, "agent": agent, **told}
    return SessionEvent(session=session, agent=agent, at=at, kind=told["kind"], event=event, members=members)


def parse_event(line: bytes, *, session: str) -> SessionEvent:
    """The event on a line of an event log. Raises `ValueError` for a line that is not as it was written."""
    try:
        told = _anything.decode(line)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    head = msgspec.convert(told, _Head)
    is_known = head.kind in _KINDS and head.v == VERSION
    event: Event | None = msgspec.convert(told, AnyEvent) if is_known else None
    members = {"v": head.v, "at": head.at, **told, "session": session}
    return SessionEvent(session=session, agent=head.agent, at=head.at, kind=head.kind, event=event, members=members)


LOG_TAIL_BYTES = 1024 * 1024
"""Bytes at the end of an event log that are looked at; the longest result of a run is shorter."""


def last_agent_changes(session: SessionDirectory) -> dict[tuple[str, int], AgentChanged]:
    """What the root last told of each start of each agent, by name and incarnation. Blocks on the disk."""
    told: dict[tuple[str, int], AgentChanged] = {}
    for observed in read_log_backwards(session.directory / EVENT_LOG):
        if isinstance(event := observed.event, AgentChanged):
            told.setdefault((event.name, event.incarnation), event)
    return told


def read_log_backwards(path: Path, *kinds: bytes) -> Iterator[SessionEvent]:
    """The events at the end of a log, the last one first; with *kinds*, as they stand in a line, only these.

    Nearly all lines of an agent are parts of what it says, and need not be parsed to be passed over.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return
    for line in reversed(lines):
        if kinds and not any(kind in line for kind in kinds):
            continue
        try:
            yield parse_event(line, session="")
        except ValueError:  # blank, torn, or where the reading began
            continue
