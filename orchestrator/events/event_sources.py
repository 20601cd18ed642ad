"""Sources of events: event logs and transcripts of agents, readable while they are written."""

from collections.abc import Iterator
from pathlib import Path

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
    """A complete line of a log, without its newline, and its position."""

    number: int
    """Line number, counted from 1; blank lines count."""
    content: bytes
    end: int
    """Offset in bytes at which the next line of the file begins."""


@attrs.define(eq=False)
class LogLines:
    """Reader of the complete lines of one file. The file need not exist yet."""

    path: Path
    _read_bytes: int = 0
    """Offset in bytes after the last line that was marked as read."""
    _number: int = 0

    def size(self) -> int:
        """Return the current size of the file in bytes; 0 if it does not exist."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, until: int) -> Iterator[LogLine]:
        """Yield the lines after the last one passed to `mark_read`, as far as they end within the first *until* bytes.

        Blank lines are skipped. Each call reads the file again, so a line that was truncated and rewritten is read in
        its new form.
        """
        # If the file is shorter than the part already read, it was truncated: continue at its new end.
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
        """Mark *line* and all earlier lines as read, so that `read` does not yield them again."""
        self._read_bytes, self._number = line.end, line.number


@attrs.frozen(kw_only=True)
class SourcedEvent:
    """An event, the line of the file that it comes from, and its sort key among the events of all files."""

    event: SessionEvent
    line: LogLine
    order: float
    """Sort key for merging: the latest time of this event and all earlier ones of the same file."""


@attrs.define(eq=False, kw_only=True)
class EventSource:
    """Reader of the events in one file of an agent or the root (supervisor): an event log or a transcript."""

    session: str
    agent: str
    lines: LogLines
    _transcript: "TranscriptParser | None" = None
    """Parser of a transcript; None for an event log."""
    _latest: float = 0.0

    def read(self, until: int) -> Iterator[SourcedEvent]:
        """Yield the unread events in the first *until* bytes of the file; mark only lines without events as read."""
        for line in self.lines.read(until):
            events = self._parse(line)
            if not events:
                self.lines.mark_read(line)
            for event in events:
                yield SourcedEvent(event=event, line=line, order=max(event.at, self._latest))

    def read_all(self) -> Iterator[SourcedEvent]:
        """Yield all unread events of the file, and mark each as read."""
        for sourced in self.read(self.lines.size()):
            self.mark_read(sourced)
            yield sourced

    def mark_read(self, sourced: SourcedEvent) -> None:
        """Mark *sourced* and all earlier events of the file as read."""
        self._latest = sourced.order
        self.lines.mark_read(sourced.line)

    def _parse(self, line: LogLine) -> list[SessionEvent]:
        try:
            if self._transcript is None:
                return [parse_event(line.content, session=self.session)]
            record = read_line(line.content)
            found = () if record is None else self._transcript.to_events(record)
            at = getattr(record, "at", 0.0)
            return [make_session_event(event, session=self.session, agent=self.agent, at=at) for event in found]
        except ValueError as exc:
            file = self.lines.path.name if self.agent == "root" else f"agents/{self.agent}/{self.lines.path.name}"
            damage = LineUnreadable(file=file, line=line.number, reason=str(exc))
            return [make_session_event(damage, session=self.session, agent=self.agent, at=self._latest)]


def open_sources(directory: Path, *, session: str) -> tuple[EventSource, EventSource]:
    """Return readers of the event log and the transcript in *directory* of an agent; the files need not exist."""
    log = EventSource(session=session, agent=directory.name, lines=LogLines(directory / EVENT_LOG))
    return log, attrs.evolve(log, lines=LogLines(directory / TRANSCRIPT), transcript=TranscriptParser())


@attrs.define(eq=False)
class TranscriptParser:
    """Parser that turns the records of one transcript into events: messages, replies, delivered mail, new epochs.

    An epoch is a version of the conversation after a rewrite such as a compaction. The first epoch of a transcript is
    the conversation's start: it yields an event for each of its messages, and none for the epoch.
    """

    _head: int = 0
    """Number of segments (blocks of the request: tools and system text) before the messages."""
    _blocks: list[int] | None = None
    """Number of content blocks of each message of the conversation; None until the conversation's start is read."""

    def to_events(self, record: Record) -> list[Event]:
        """Return the events for *record*; empty if its kind yields none. Call it with all records, in file order."""
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
    """Return the first items of *blocks* (content blocks per message), as many as sum up to at most *segments*."""
    count = 0
    for number, size in enumerate(blocks):
        count += size
        if count > segments:
            return blocks[:number]
    return blocks


def _message(message: MessageRecord | EpochMessage) -> MessageRecorded:
    content = [msgspec.json.decode(restore_json(block)) for block in message.blocks]
    return MessageRecorded(role=message.role, content=content)
