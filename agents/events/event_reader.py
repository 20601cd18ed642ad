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
    """Content blocks of the message, as in the API."""


class ReplyRecorded(Event, frozen=True, kw_only=True, tag="replied"):
    """A model call got a reply; the fields have its token usage and cost."""

    turn: int
    message_id: str
    request_id: str | None
    stop_reason: str
    usage: Usage
    cost_usd: str
    """Exact dollars, as a decimal number."""
    max_tokens: int
    seconds: float
    first_byte: float
    attempts: int
    is_taken: bool
    """False for a reply that was cut off and will be requested again."""


class MailDelivered(Event, frozen=True, kw_only=True, tag="delivered"):
    """The last recorded message contains mail of other agents."""

    ids: list[str]


class EpochBegan(Event, frozen=True, kw_only=True, tag="epoch"):
    """Earlier parts of the conversation were rewritten."""

    epoch: int
    kept: int
    """Number of segments that stayed unchanged."""
    messages: int
    """Number of messages after the rewrite."""


class LineUnreadable(Event, frozen=True, kw_only=True, tag="unreadable"):
    """A line of a log is damaged."""

    file: str
    """Path relative to the session directory."""
    line: int
    reason: str


DERIVED_EVENTS: tuple[type[Event], ...] = (MessageRecorded, ReplyRecorded, MailDelivered, EpochBegan, LineUnreadable)
"""Events that a reader derives from transcripts and from damage; no process writes them to its event log."""

_KINDS = frozenset(kind.__struct_config__.tag for kind in EVENTS)


class _Head(msgspec.Struct):
    v: int
    at: float
    agent: str
    kind: str


@attrs.frozen(kw_only=True)
class SessionEvent:
    """One event of a session."""

    session: str
    agent: str
    at: float
    """Seconds since 1970; 0 if no time was recorded."""
    kind: str
    event: Event | None
    """The decoded event; None for a kind or a version that this program does not know."""
    members: Mapping[str, Any]
    """All members as JSON, including members that this program does not know."""

    @property
    def line(self) -> bytes:
        """The event as one line of JSON."""
        return msgspec.json.encode(self.members) + b"\n"


def make_session_event(event: Event, *, session: str, agent: str, at: float) -> SessionEvent:
    """Return a session event for *event*, which is in no event log."""
    content = msgspec.to_builtins(event)
    members = {"v": VERSION, "at": at, "session": session, "agent": agent, **content}
    return SessionEvent(session=session, agent=agent, at=at, kind=content["kind"], event=event, members=members)


def parse_event(line: bytes, *, session: str) -> SessionEvent:
    """Decode one line of an event log. Raises `ValueError` for a damaged line."""
    try:
        content = msgspec.json.decode(line, type=dict[str, Any])
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    head = msgspec.convert(content, _Head)
    is_known = head.kind in _KINDS and head.v == VERSION
    event: Event | None = msgspec.convert(content, AnyEvent) if is_known else None
    members = {"v": head.v, "at": head.at, **content, "session": session}
    return SessionEvent(session=session, agent=head.agent, at=head.at, kind=head.kind, event=event, members=members)


LOG_TAIL_BYTES = 1024 * 1024
"""Number of bytes read from the end of an event log; the longest result of a run is shorter."""


def last_agent_changes(session: SessionDirectory) -> dict[tuple[str, int], AgentChanged]:
    """Return the last reported state of each incarnation of each agent, by name and number. Blocks on the disk."""
    latest: dict[tuple[str, int], AgentChanged] = {}
    for session_event in read_log_backwards(session.directory / EVENT_LOG):
        if isinstance(event := session_event.event, AgentChanged):
            latest.setdefault((event.name, event.incarnation), event)
    return latest


def read_log_backwards(path: Path, *kinds: bytes) -> Iterator[SessionEvent]:
    """Yield the events at the end of a log, the last one first.

    With *kinds*, yield only lines that contain one of these byte strings. The filter avoids parsing, because nearly all
    lines of an agent are parts of replies.
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
