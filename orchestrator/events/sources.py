"""The two files of an agent as events: the log of what it tells, and the transcript of what it must not lose."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import attrs
import msgspec

from coterie.agents.conversation.records import (
    EpochMessage,
    EpochRecord,
    MailRecord,
    MessageRecord,
    Record,
    ReplyRecord,
    read_line,
    restore,
)
from coterie.agents.events import Event
from coterie.orchestrator.events.lines import Line, Lines
from coterie.orchestrator.events.observed import (
    EpochBegan,
    LineUnreadable,
    MailDelivered,
    MessageRecorded,
    Observed,
    ReplyRecorded,
    observe,
    read_told,
)

EVENT_LOG = "events.jsonl"
TRANSCRIPT = "transcript.jsonl"


class Reading(Protocol):
    """Makes events of the lines of one kind of file, given in order."""

    def present(self, line: bytes, *, session: str, agent: str) -> list[Observed]:
        """The events of *line*. Raises `ValueError` for a line that is not as it was written."""
        ...


@attrs.frozen(kw_only=True)
class Arrival:
    """An event on its way from a file."""

    event: Observed
    line: Line
    order: float
    """Its time, or that of an earlier one in the same file if that is later."""


@attrs.define(eq=False, kw_only=True)
class Source:
    """One file of one agent, read as events in the order of its lines."""

    session: str
    agent: str
    lines: Lines
    _reading: Reading
    _latest: float = 0.0

    def read(self, until: int) -> Iterator[Arrival]:
        """What was not taken off yet and ends within the first *until* bytes of the file."""
        for line in self.lines.read(until):
            events = self._present(line)
            if not events:
                self.lines.take_off(line)
            for event in events:
                yield Arrival(event=event, line=line, order=max(event.at, self._latest))

    def take_off(self, arrival: Arrival) -> None:
        """Count *arrival* as presented."""
        self._latest = arrival.order
        self.lines.take_off(arrival.line)

    def _present(self, line: Line) -> list[Observed]:
        try:
            return self._reading.present(line.content, session=self.session, agent=self.agent)
        except ValueError as exc:
            file = self.lines.path.name if self.agent == "root" else f"agents/{self.agent}/{self.lines.path.name}"
            damage = LineUnreadable(file=file, line=line.number, reason=str(exc))
            return [observe(damage, session=self.session, agent=self.agent, at=self._latest)]


def open_sources(directory: Path, *, session: str) -> tuple[Source, Source]:
    """The event log and the transcript of the agent whose *directory* this is; neither need exist."""

    def source(name: str, reading: Reading) -> Source:
        return Source(session=session, agent=directory.name, lines=Lines(directory / name), reading=reading)

    return source(EVENT_LOG, EventLogReading()), source(TRANSCRIPT, TranscriptReading())


def open_root_source(directory: Path) -> Source:
    """The event log of the root of the session in *directory*; it need not exist."""
    return Source(session=directory.name, agent="root", lines=Lines(directory / EVENT_LOG), reading=EventLogReading())


class EventLogReading:
    """A line of an event log is an event."""

    def present(self, line: bytes, *, session: str, agent: str) -> list[Observed]:
        """The event of *line*, whatever its kind."""
        del agent
        return [read_told(line, session=session)]


@attrs.define(eq=False)
class TranscriptReading:
    """A transcript's messages, replies and rewrites are events. The first epoch is no rewrite: it holds messages."""

    _head: int = 0
    """Segments before the messages."""
    _blocks: list[int] | None = None
    """Segments of each message; None before the first epoch."""

    def present(self, line: bytes, *, session: str, agent: str) -> list[Observed]:
        """The events of one record; none for a kind that says nothing to a reader."""
        record = read_line(line)
        if record is None:
            return []
        at = getattr(record, "at", 0.0)
        return [observe(event, session=session, agent=agent, at=at) for event in self._events(record)]

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
    content = [msgspec.json.decode(restore(block)) for block in message.blocks]
    return MessageRecorded(role=message.role, content=content)
