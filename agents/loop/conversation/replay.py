"""Replay of a transcript (stored conversation of an agent), which restores each model request byte for byte."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from coterie.agents.errors import TranscriptCorrupt
from coterie.agents.loop.conversation.cache_markers import FIVE_MINUTES, CacheMarker, CacheTtls, choose_markers
from coterie.agents.loop.conversation.conversation import Conversation
from coterie.agents.loop.conversation.origins import Origin, Origins
from coterie.agents.loop.conversation.request_body import RenderedRequest
from coterie.agents.loop.conversation.transcript import apply_record
from coterie.agents.loop.conversation.transcript_records import (
    Boundary,
    EpochRecord,
    MarksRecord,
    MessageRecord,
    Record,
    ReplyRecord,
    read_line,
)


@attrs.frozen(kw_only=True, eq=False)
class ReplayedTurn:
    """One model call of a transcript: the conversation that was sent, and the record of the reply."""

    reply: ReplyRecord
    conversation: Conversation
    """Conversation of the agent when the call was made, without the reply."""
    origins: Sequence[Origin]
    """Kind of content and last change of each segment (block) of `conversation`, in order."""
    boundary: Boundary | None
    """Last compaction (summary in place of older messages) before the call; None if there was no compaction."""
    line: int
    """Line number of the reply record in the transcript file, from 1."""

    @property
    def number(self) -> int:
        """Number of the turn. Several replayed turns share a number if a reply was cut off and requested again."""
        return self.reply.turn

    @property
    def lifetimes(self) -> CacheTtls:
        """Times to live of the cache entries at the request's cache markers; five minutes if the reply records none."""
        names = attrs.fields_dict(CacheTtls)
        return CacheTtls(**dict(zip(names, self.reply.lives, strict=True))) if self.reply.lives else FIVE_MINUTES

    @property
    def markers(self) -> tuple[CacheMarker, ...]:
        """Cache markers of the request, computed from the conversation in the same way as before the call."""
        return choose_markers(self.conversation.prefix, self.conversation.marks, ttl=self.lifetimes)

    def render(self) -> RenderedRequest:
        """Return the body of the model request of this turn, with the bytes that were sent."""
        return self.conversation.render(max_tokens=self.reply.max_tokens, ttl=self.lifetimes)


@attrs.define(eq=False)
class _Replay:
    """State of the replay of one transcript after the records that were read so far."""

    conversation: Conversation | None = None
    origins: Origins = attrs.field(factory=Origins)
    boundary: Boundary | None = None
    asked: Conversation | None = None
    """Conversation that was sent, while the records of a reply (message, cache markers, usage) are read; else None."""

    def apply(self, record: Record, line: int) -> ReplayedTurn | None:
        """Apply *record*; return the turn that it completes, or None. Raises `ValueError` if it cannot come next."""
        turn = None
        if isinstance(record, ReplyRecord):
            asked = self.asked or (self.conversation and self.conversation.fork())
            if asked is None:
                raise ValueError("the transcript has a reply before any epoch record; restore it from a backup")
            origins = self.origins.first(len(asked))
            turn = ReplayedTurn(reply=record, conversation=asked, origins=origins, boundary=self.boundary, line=line)
        # One reply is written as up to three records, in this order: its message, the marks of its request, its usage.
        is_of_reply = isinstance(record, MessageRecord) and record.role == "assistant"
        if is_of_reply or (isinstance(record, MarksRecord) and self.asked is None):
            self.asked = self.conversation and self.conversation.fork()
        elif not isinstance(record, MarksRecord):
            self.asked = None
        if isinstance(record, EpochRecord | MessageRecord | MarksRecord):
            self.conversation = apply_record(self.conversation, record)
        if isinstance(record, EpochRecord):
            self.boundary = record.boundary or self.boundary
        if self.conversation is not None:
            self.origins.follow(record, self.conversation)
        return turn


def replay_turns(path: Path) -> Iterator[ReplayedTurn]:
    """Yield the turns (model calls with replies) of the transcript file *path*, including replies that were cut off.

    Skips an incomplete last line. Blocks on the disk. Raises `TranscriptCorrupt` for other damage, and `OSError`.
    """
    replay = _Replay()
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line == b"\n":
                continue
            try:
                record = read_line(line.removesuffix(b"\n"))
                turn = None if record is None else replay.apply(record, number)
            except ValueError as exc:
                if not line.endswith(b"\n"):
                    return
                raise TranscriptCorrupt(number, str(exc)) from exc
            if turn is not None:
                yield turn
