"""Decoding of a session's events, events that readers create from transcripts, and reading a log backwards."""

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
    """A message with role user or assistant was added to an agent's transcript (its stored conversation)."""

    role: Role
    content: list[dict[str, Any]]
    """Content blocks of the message, in the format of the model API."""


class ReplyRecorded(Event, frozen=True, kw_only=True, tag="replied"):
    """A model call got a reply; the fields have its token usage and cost."""

    turn: int
    message_id: str
    request_id: str | None
    stop_reason: str
    usage: Usage
    cost_usd: str
    """Exact cost of the call in dollars, as a decimal number."""
    max_tokens: int
    seconds: float
    first_byte: float
    attempts: int
    is_taken: bool
    """False if the reply was cut off and is not used, because the same turn is requested again."""


class MailDelivered(Event, frozen=True, kw_only=True, tag="delivered"):
    """The message recorded directly before contains mail of other agents or the user; *ids* are the mail's ids."""

    ids: list[str]


class EpochBegan(Event, frozen=True, kw_only=True, tag="epoch"):
    """A new epoch (version of the conversation) began: messages were rewritten, for example by a compaction."""

    epoch: int
    kept: int
    """Number of unchanged blocks at the start of the conversation, including tool definitions and system prompt."""
    messages: int
    """Number of messages in the conversation after the rewrite."""


class LineUnreadable(Event, frozen=True, kw_only=True, tag="unreadable"):
    """A line of an event log or of a transcript (stored conversation) is damaged. The reader skipped this line."""

    file: str
    """Path of the damaged file, relative to the session directory."""
    line: int
    reason: str


DERIVED_EVENTS: tuple[type[Event], ...] = (MessageRecorded, ReplyRecorded, MailDelivered, EpochBegan, LineUnreadable)
"""Event classes that a reader creates from transcripts and damaged lines. No process writes them to an event log."""

_KINDS = frozenset(kind.__struct_config__.tag for kind in EVENTS)


class _Head(msgspec.Struct):
    v: int
    at: float
    agent: str
    kind: str


@attrs.frozen(kw_only=True)
class SessionEvent:
    """One event of a session with its agent and time, as a reader of an event log or a transcript returns it."""

    session: str
    agent: str
    at: float
    """Seconds since 1970; 0 if no time was recorded."""
    kind: str
    event: Event | None
    """The decoded event; None for a kind or a version that this program does not know."""
    members: Mapping[str, Any]
    """All JSON members of the event, including members that this program does not know."""

    @property
    def line(self) -> bytes:
        """The event as one line of JSON, with its newline."""
        return msgspec.json.encode(self.members) + b"\n"


def make_session_event(event: Event, *, session: str, agent: str, at: float) -> SessionEvent:
    """Return *event* as a session event. Used for events that a reader creates, which are in no event log."""
    content = msgspec.to_builtins(event)
    members = {"v": VERSION, "at": at, "session": session, "agent": agent, **content}
    return SessionEvent(session=session, agent=agent, at=at, kind=content["kind"], event=event, members=members)


def parse_event(line: bytes, *, session: str) -> SessionEvent:
    """Decode one line of an event log of *session*. Raises `ValueError` for a damaged line."""
    try:
        content = msgspec.json.decode(line, type=dict[str, Any])
    except RecursionError as exc:
        raise ValueError("the JSON of this event is nested too deeply, so the line is skipped") from exc
    head = msgspec.convert(content, _Head)
    is_known = head.kind in _KINDS and head.v == VERSION
    event: Event | None = msgspec.convert(content, AnyEvent) if is_known else None
    members = {"v": head.v, "at": head.at, **content, "session": session}
    return SessionEvent(session=session, agent=head.agent, at=head.at, kind=head.kind, event=event, members=members)


LOG_TAIL_BYTES = 1024 * 1024
"""Number of bytes read from the end of an event log. Even the longest event, the end of a run, is shorter."""


def last_agent_changes(session: SessionDirectory) -> dict[tuple[str, int], AgentChanged]:
    """Return each agent's last state event in the final `LOG_TAIL_BYTES` of the root log, by name and start number."""
    latest: dict[tuple[str, int], AgentChanged] = {}
    for session_event in read_log_backwards(session.directory / EVENT_LOG):
        if isinstance(event := session_event.event, AgentChanged):
            latest.setdefault((event.name, event.incarnation), event)
    return latest


def read_log_backwards(path: Path, *kinds: bytes) -> Iterator[SessionEvent]:
    """Yield the events in the last `LOG_TAIL_BYTES` of the log *path*, newest first; none if the file is missing.

    With *kinds*, skip lines that contain none of these byte strings. Most lines of an agent's log are pieces of
    replies, and skipped lines need no parsing.
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
        except ValueError:  # A blank or torn line, or the line where reading started.
            continue
