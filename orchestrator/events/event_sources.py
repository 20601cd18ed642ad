"""Event logs and transcripts as sources of events, read while they are written."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import attrs
import msgspec

from coterie.agents.events.agent_events import Event
from coterie.agents.events.event_reader import (
    EpochBegan,
    LineUnreadable,
    MailDelivered,
    MessageRecorded,
    ReplyRecorded,
    SessionEvent,
    make_session_event,
    parse_event,
)
from coterie.agents.loop.conversation.transcript_records import (
    EpochMessage,
    EpochRecord,
    MailRecord,
    MessageRecord,
    Record,
    ReplyRecord,
    read_line,
    restore_json,
)
from coterie.session_directory import EVENT_LOG, TRANSCRIPT


@attrs.frozen
class LogLine:
    """A whole line, without its newline."""

    number: int
    """The first is 1; blank ones count."""
    content: bytes
    end: int
    """Where the next one begins in the file."""


@attrs.define(eq=False)
class LogLines:
    """The whole lines of one file, which need not exist yet, in the order in which they are taken off."""

    path: Path
    _read_bytes: int = 0
    """Bytes."""
    _number: int = 0

    def size(self) -> int:
        """Bytes of the file now."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, until: int) -> Iterator[LogLine]:
        """The lines not taken off yet that end within the first *until* bytes; blank ones are left out.

        Every call reads the file anew from there, so a line that was cut off and written again is read as it is now.
        """
        # Shorter than what was read already: whoever cut it goes on from its new end.
        self._read_bytes = min(self._read_bytes, self.size())
        end, number = self._read_bytes, self._number
        if end >= until:
            return
        with self.path.open("rb") as file:
            file.seek(end)
            for content in file:
                end, number = end + len(content), number + 1
                if end > until or not content.endswith(b"\n"):
                    return
                if content != b"\n":
                    yield LogLine(number, content[:-1], end)

    def mark_read(self, line: LogLine) -> None:
        """Count *line*, and all before it, as read."""
        self._read_bytes, self._number = line.end, line.number


class LineParser(Protocol):
    """Makes events of the lines of one kind of file, given in order."""

    def to_events(self, line: bytes, *, session: str, agent: str) -> list[SessionEvent]:
        """The events of *line*. Raises `ValueError` for a line that is not as it was written."""
        ...


@attrs.frozen(kw_only=True)
class SourcedEvent:
    """An event on its way from a file."""

    event: SessionEvent
    line: LogLine
    order: float
    """Its time, or that of an earlier one in the same file if that is later."""


@attrs.define(eq=False, kw_only=True)
class EventSource:
    """One file of one agent, read as events in the order of its lines."""

    session: str
    agent: str
    lines: LogLines
    _parser: LineParser
    _latest: float = 0.0

    def read(self, until: int) -> Iterator[SourcedEvent]:
        """What was not taken off yet and ends within the first *until* bytes of the file."""
        for line in self.lines.read(until):
            events = self._present(line)
            if not events:
                self.lines.mark_read(line)
            for event in events:
                yield SourcedEvent(event=event, line=line, order=max(event.at, self._latest))

    def mark_read(self, arrival: SourcedEvent) -> None:
        """Count *arrival* as presented."""
        self._latest = arrival.order
        self.lines.mark_read(arrival.line)

    def _present(self, line: LogLine) -> list[SessionEvent]:
        try:
            return self._parser.to_events(line.content, session=self.session, agent=self.agent)
        except ValueError as exc:
            file = self.lines.path.name if self.agent == "root" else f"agents/{self.agent}/{self.lines.path.name}"
            damage = LineUnreadable(file=file, line=line.number, reason=str(exc))
            return [make_session_event(damage, session=self.session, agent=self.agent, at=self._latest)]


def open_sources(directory: Path, *, session: str) -> tuple[EventSource, EventSource]:
    """The event log and the transcript of the agent whose *directory* this is; neither need exist."""

    def source(name: str, reading: LineParser) -> EventSource:
        return EventSource(session=session, agent=directory.name, lines=LogLines(directory / name), parser=reading)

    return source(EVENT_LOG, EventLogParser()), source(TRANSCRIPT, TranscriptParser())


def open_root_source(directory: Path) -> EventSource:
    """The event log of the root of the session in *directory*; it need not exist."""
    return EventSource(
        session=directory.name, agent="root", lines=LogLines(directory / EVENT_LOG), parser=EventLogParser()
    )


class EventLogParser:
    """A line of an event log is an event."""

    def to_events(self, line: bytes, *, session: str, agent: str) -> list[SessionEvent]:
        """The event of *line*, whatever its kind."""
        del agent
        return [parse_event(line, session=session)]


@attrs.define(eq=False)
class TranscriptParser:
    """A transcript's messages, replies and rewrites are events. The first epoch is no rewrite: it holds messages."""

    _head: int = 0
    """Segments before the messages."""
    _blocks: list[int] | None = None
    """Segments of each message; None before the first epoch."""

    def to_events(self, line: bytes, *, session: str, agent: str) -> list[SessionEvent]:
        """The events of one record; none for a kind that says nothing to a reader."""
        record = read_line(line)
        if record is None:
            return []
        at = getattr(record, "at", 0.0)
        return [make_session_event(event, session=session, agent=agent, at=at) for event in self._events(record)]

    def _events(self, record: Record) -> list[Event]:
        match record:
            case EpochRecord():
                return self._epoch(record)
            case MessageRecord():
                self._blocks = [*(self._blocks or ()), len(record.blocks)]
                return [_message(record)]
            case ReplyRecord():
                facts = {name: getattr(record, name) for name in ReplyRecorded.__struct_fields__}
                return [ReplyRecorded(**facts)]
            case MailRecord():
                return [MailDelivered(ids=record.ids)] if record.ids else []
            case _:
                return []

    def _epoch(self, record: EpochRecord) -> list[Event]:
        is_first = self._blocks is None
        self._head = min(self._head, record.keep) + len(record.tools) + len(record.system)
        kept = _within(self._blocks or [], record.keep - self._head)
        self._blocks = [*kept, *(len(message.blocks) for message in record.messages)]
        if is_first:
            return [_message(message) for message in record.messages]
        return [EpochBegan(epoch=record.epoch, kept=record.keep, messages=len(self._blocks))]


def _within(blocks: list[int], segments: int) -> list[int]:
    """The first messages that together have no more than so many *segments*."""
    count = 0
    for number, size in enumerate(blocks):
        count += size
        if count > segments:
            return blocks[:number]
    return blocks


def _message(message: MessageRecord | EpochMessage) -> MessageRecorded:
    content = [msgspec.json.decode(restore_json(block)) for block in message.blocks]
    return MessageRecorded(role=message.role, content=content)
