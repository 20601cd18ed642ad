"""Replay of a transcript, which restores the request of each turn as it was sent."""

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
    """A model call and its recorded reply."""

    reply: ReplyRecord
    conversation: Conversation
    """The conversation at the time of the call."""
    origins: Sequence[Origin]
    """Origins of the segments of `conversation`."""
    boundary: Boundary | None
    """The last compaction before the call."""
    line: int
    """Line number of the reply in the transcript."""

    @property
    def number(self) -> int:
        """Number of the turn; a turn that was cut off and requested again appears several times."""
        return self.reply.turn

    @property
    def lifetimes(self) -> CacheTtls:
        """Times to live of the cache entries at the markers of the request."""
        names = attrs.fields_dict(CacheTtls)
        return CacheTtls(**dict(zip(names, self.reply.lives, strict=True))) if self.reply.lives else FIVE_MINUTES

    @property
    def markers(self) -> tuple[CacheMarker, ...]:
        """The cache markers of the request."""
        return choose_markers(self.conversation.prefix, self.conversation.marks, ttl=self.lifetimes)

    def render(self) -> RenderedRequest:
        """Render the request of this turn."""
        return self.conversation.render(max_tokens=self.reply.max_tokens, ttl=self.lifetimes)


@attrs.define(eq=False)
class _Replay:
    """State of a replay after some records."""

    conversation: Conversation | None = None
    origins: Origins = attrs.field(factory=Origins)
    boundary: Boundary | None = None
    asked: Conversation | None = None
    """The conversation that was sent, if the next record is a reply."""

    def apply(self, record: Record, line: int) -> ReplayedTurn | None:
        """Apply one record and return the turn that it completes. Raises `ValueError` if the record does not follow."""
        turn = None
        if isinstance(record, ReplyRecord):
            asked = self.asked or (self.conversation and self.conversation.fork())
            if asked is None:
                raise ValueError("a reply comes before the first epoch")
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
    """Yield the turns of a transcript in order, including replies that were cut off and requested again.

    Skips a torn last line. Blocks on the disk. Raises `TranscriptCorrupt` and `OSError`.
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
