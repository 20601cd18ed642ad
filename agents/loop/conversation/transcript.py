"""Transcript: append-only file of an agent, from which a restart restores its conversation byte for byte."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import attrs
import msgspec

from coterie.agents.errors import TranscriptCorrupt
from coterie.agents.loop.conversation.blocks import Block
from coterie.agents.loop.conversation.cache_markers import MarkerHistory
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.key_header import KeyHeader
from coterie.agents.loop.conversation.prefix import Prefix
from coterie.agents.loop.conversation.segment import Segment
from coterie.agents.loop.conversation.transcript_records import (
    VERSION,
    Addition,
    Boundary,
    EpochMessage,
    EpochRecord,
    ExtractionRecord,
    MailRecord,
    MarksRecord,
    MessageRecord,
    NotesRecord,
    RecallRecord,
    Record,
    ReplyRecord,
    StateRecord,
    UnansweredMessage,
    UserTextRecord,
    read_line,
    restore_json,
    store_json,
    write_line,
)
from coterie.clock import Clock
from coterie.files import Appender
from coterie.mailbox.envelope import MessageId


@attrs.frozen(kw_only=True)
class LoadedTranscript:
    """Content of a transcript file: the conversation of an agent, and its state from other records, such as mail."""

    conversation: Conversation | None = None
    """Conversation after the last record; None if the file contains no conversation yet."""
    size: int = 0
    """Size in bytes of the records that were loaded; records of an interrupted last write do not count."""
    dropped_bytes: int = 0
    """Number of bytes after the loaded records, which an interrupted write left and the loading ignored."""
    reply: ReplyRecord | None = None
    """Record of the last model reply: its turn, usage and cost; None before the first reply."""
    counted: int = 0
    """Number of segments (blocks) whose tokens the usage in `reply` includes; 0 after a rewrite of the conversation."""
    states: tuple[StateRecord, ...] = ()
    mail: frozenset[MessageId] = frozenset()
    """Ids of all messages from other agents or the user that ever entered the conversation."""
    open_mail: Mapping[str, UnansweredMessage] = attrs.field(factory=dict)
    """Received messages that the agent should answer and has not answered, by message id; at most the newest 50."""
    words: tuple[str, ...] = ()
    """The agent's task and all texts that the user wrote to it, oldest first."""
    notes: NotesRecord | None = None
    """Record of the last update of the session notes (file with a summary of the work); None before the first one."""
    boundary: Boundary | None = None
    """Last compaction (summary in place of older messages); None before the first one."""
    recalled: frozenset[str] = frozenset()
    """Paths of the memory files that the model was shown since the last compaction, so that none is shown twice."""
    recalled_bytes: int = 0
    """Size in bytes of all memories that the model was ever shown; a setting limits it."""
    extraction: ExtractionRecord | None = None
    """Record of the last extraction (saving of memories from the conversation); None before the first one."""


def load_transcript(path: Path) -> LoadedTranscript:
    """Read the transcript file *path* and return its content.

    Ignores the records of an interrupted last write, also complete ones, and records of unknown kinds. Blocks on the
    disk. Raises `TranscriptCorrupt` for damage anywhere else, and `OSError`.
    """
    content = path.read_bytes()
    loaded = before = LoadedTranscript()
    more = end = 0
    for number, line in enumerate(content.split(b"\n"), 1):
        end = min(end + len(line) + 1, len(content))
        if not line:
            continue
        try:
            record = read_line(line)
        except ValueError as exc:
            # Only an interrupted write leaves a line without a newline.
            if end == len(content) and not content.endswith(b"\n"):
                break
            raise TranscriptCorrupt(number, str(exc)) from exc
        more -= more > 0
        if isinstance(record, MessageRecord | EpochRecord) and record.more:
            # The record changes the conversation in place.
            conversation = loaded.conversation and loaded.conversation.fork()
            before, more = attrs.evolve(loaded, conversation=conversation), record.more
        try:
            loaded = attrs.evolve(loaded if record is None else _apply(loaded, record), size=end)
        except ValueError as exc:
            raise TranscriptCorrupt(number, str(exc)) from exc
    if more:
        loaded = before
    return attrs.evolve(loaded, dropped_bytes=len(content) - loaded.size)


@attrs.define(eq=False)
class TranscriptWriter:
    """The only writer of one transcript file. Its writes are short appends, so async code may call them directly."""

    loaded: LoadedTranscript
    """Content of the transcript file when it was opened, without later records."""
    _appender: Appender
    _clock: Clock
    _size: int
    _recorded: Conversation | None
    _is_torn: bool

    @classmethod
    def open(cls, path: Path, clock: Clock | None = None) -> "TranscriptWriter":
        """Open or create the transcript *path* and load its content. Raises `TranscriptCorrupt` and `OSError`."""
        loaded = load_transcript(path) if path.exists() else LoadedTranscript()
        recorded = loaded.conversation.fork() if loaded.conversation else None
        is_torn = loaded.dropped_bytes > 0
        return cls(loaded, Appender.open(path), clock or Clock(), loaded.size, recorded, is_torn)

    @property
    def path(self) -> Path:
        """Path of the transcript file."""
        return self._appender.path

    def record(self, conversation: Conversation, *also: Addition, boundary: Boundary | None = None) -> None:
        """Append to the file all changes of *conversation* since the last call, then the records *also*.

        Call it after every change; *boundary* describes a compaction. The write is atomic: a reader later finds a new
        message with all of *also*, or nothing. Raises `OSError`; the next call then writes the same changes again.
        """
        now = self._clock.now()
        records = [*_changes(self._recorded, conversation, boundary), *also]
        for record in records:
            if not isinstance(record, MarksRecord):
                record.at = now
        if not records:
            return
        if isinstance(records[0], MessageRecord | EpochRecord):
            records[0].more = len(records) - 1
        if self._is_torn:
            # Remove the torn record first: in the middle of the file it would count as damage.
            self._appender.cut(self._size)
        lines = b"".join(map(write_line, records))
        self._is_torn = True
        self._appender.append(lines)
        self._is_torn = False
        self._size += len(lines)
        self._recorded = conversation.fork()

    def sync(self) -> None:
        """Flush the file, so that it survives a power cut. Raises `OSError`; blocks, so call it from a thread."""
        self._appender.sync()

    def close(self) -> None:
        """Close the transcript file; no records can be written afterwards."""
        self._appender.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _changes(before: Conversation | None, after: Conversation, boundary: Boundary | None) -> Iterator[Record]:
    if before is None or after.epoch != before.epoch or not after.extends(before):
        yield _epoch_record(before.segments if before else (), after, boundary)
        return
    assert boundary is None, "a compaction begins an epoch"
    length = len(before)
    for message in after.prefix.messages(length):
        length += len(message.blocks)
        prefix_hash = after.prefix.hash_at(length).hex()
        yield MessageRecord(VERSION, message.role, _stored(message.blocks), prefix_hash)
    if after.marks != before.marks:
        yield MarksRecord(VERSION, after.marks.previous, after.marks.shared)


def _epoch_record(before: Sequence[Segment], after: Conversation, boundary: Boundary | None) -> EpochRecord:
    segments = after.segments
    keep = _kept(before, segments)
    return EpochRecord(
        v=VERSION,
        epoch=after.epoch,
        header=store_json(after.header.to_bytes()),
        keep=keep,
        tools=_stored(s.data for s in segments[keep:] if s.section == "tools"),
        system=_stored(s.data for s in segments[keep:] if s.section == "system"),
        messages=[EpochMessage(role, _stored(blocks)) for role, blocks in after.prefix.messages(keep)],
        previous=after.marks.previous,
        shared=after.marks.shared,
        hash=after.prefix_hash.hex(),
        boundary=boundary,
    )


def _kept(before: Sequence[Segment], after: Sequence[Segment]) -> int:
    """Return how many segments (blocks) are equal at the start of *before* and *after*, without incomplete messages."""
    keep = 0
    for old, new in zip(before, after, strict=False):
        if (old.glue, old.data) != (new.glue, new.data):
            break
        keep += 1
    while 0 < keep < len(after) and after[keep].section == "messages" and not after[keep].opens_message:
        keep -= 1
    return keep


def _stored(blocks: Iterable[bytes]) -> list[msgspec.Raw]:
    return [store_json(data) for data in blocks]


def _apply(loaded: LoadedTranscript, record: Record) -> LoadedTranscript:
    """Return the content *loaded*, updated by the next record. Raises `ValueError` if *record* contradicts *loaded*."""
    changes: dict[str, Any] = {}
    match record:
        case StateRecord():
            changes = {"states": (*loaded.states, record)}
        case MailRecord():
            mail = loaded.mail.union(map(MessageId, record.ids))
            changes = {"mail": mail, "open_mail": record.update(loaded.open_mail)}
        case UserTextRecord():
            changes = {"words": (*loaded.words, *record.texts)}
        case NotesRecord():
            changes = {"notes": record}
        case RecallRecord():
            size = loaded.recalled_bytes + record.bytes
            changes = {"recalled": loaded.recalled.union(record.paths), "recalled_bytes": size}
        case ExtractionRecord():
            changes = {"extraction": record}
        case ReplyRecord():
            changes = {"reply": record, "counted": len(loaded.conversation) if loaded.conversation else 0}
        case EpochRecord() | MessageRecord() | MarksRecord():
            changes = {"conversation": apply_record(loaded.conversation, record)}
            if isinstance(record, EpochRecord):
                changes |= {"counted": 0} | _compaction_changes(loaded, record.boundary)
    return attrs.evolve(loaded, **changes)


def _compaction_changes(loaded: LoadedTranscript, boundary: Boundary | None) -> dict[str, Any]:
    if boundary is None:
        return {}
    mail = loaded.mail.union(map(MessageId, boundary.mail))
    return {"boundary": boundary, "mail": mail, "recalled": frozenset()}


def apply_record(conversation: Conversation | None, record: EpochRecord | MessageRecord | MarksRecord) -> Conversation:
    """Return *conversation* after the change that *record* describes; may change the given object in place.

    *conversation* is None before the first record. Raises `ValueError` if *record* contradicts the earlier records.
    """
    if isinstance(record, EpochRecord):
        conversation = _epoch(conversation, record)
    elif conversation is None:
        raise ValueError("the transcript does not begin with an epoch record; restore the missing lines from a backup")
    elif isinstance(record, MessageRecord):
        conversation.append(record.role, [restore_json(block) for block in record.blocks])
    if isinstance(record, EpochRecord | MarksRecord):
        if any(mark is not None and not 0 <= mark < len(conversation) for mark in (record.previous, record.shared)):
            raise ValueError("a cache marker is outside the conversation; restore the transcript file from a backup")
        conversation.marks = MarkerHistory(previous=record.previous, shared=record.shared)
    if isinstance(record, EpochRecord | MessageRecord) and conversation.prefix_hash.hex() != record.hash:
        raise ValueError("the record's hash does not match the lines before; restore the transcript from a backup")
    return conversation


def _epoch(before: Conversation | None, record: EpochRecord) -> Conversation:
    header = KeyHeader.from_bytes(restore_json(record.header))
    if record.keep > (len(before) if before else 0):
        raise ValueError("an epoch record keeps blocks that the transcript lacks; restore the transcript from a backup")
    prefix = before.prefix.cut(record.keep).under(header) if before else Prefix(header=header)
    prefix = prefix.extended("tools", [Block.read(restore_json(tool), "tools") for tool in record.tools])
    prefix = prefix.extended("system", [Block.read(restore_json(block), "system") for block in record.system])
    for message in record.messages:
        prefix = prefix.with_message(message.role, [Block.read(restore_json(b)) for b in message.blocks])
    return Conversation(prefix, record.epoch)
