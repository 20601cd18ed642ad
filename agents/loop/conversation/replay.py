"""Replay of a transcript: the request of each turn as it was sent."""

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
    """A model call that was answered."""

    reply: ReplyRecord
    conversation: Conversation
    """As it was when the model was asked."""
    origins: Sequence[Origin]
    """Of its segments."""
    boundary: Boundary | None
    """The last compaction before it."""
    line: int
    """Of its reply in the transcript."""

    @property
    def number(self) -> int:
        """Of the turn; one that was cut off and asked again has it more than once."""
        return self.reply.turn

    @property
    def lifetimes(self) -> CacheTtls:
        """How long entries at its markers were to live."""
        names = attrs.fields_dict(CacheTtls)
        return CacheTtls(**dict(zip(names, self.reply.lives, strict=True))) if self.reply.lives else FIVE_MINUTES

    @property
    def markers(self) -> tuple[CacheMarker, ...]:
        """The cache markers of its request."""
        return choose_markers(self.conversation.prefix, self.conversation.marks, ttl=self.lifetimes)

    def render(self) -> RenderedRequest:
        """The request that was answered."""
        return self.conversation.render(max_tokens=self.reply.max_tokens, ttl=self.lifetimes)


@attrs.define(eq=False)
class _Replay:
    """What a transcript has come to."""

    conversation: Conversation | None = None
    origins: Origins = attrs.field(factory=Origins)
    boundary: Boundary | None = None
    asked: Conversation | None = None
    """What a reply, if it is recorded next, was the answer to."""

    def apply(self, record: Record, line: int) -> ReplayedTurn | None:
        """Go on by one record; the turn that it completes. Raises `ValueError` if it does not follow."""
        turn = None
        if isinstance(record, ReplyRecord):
            turn = self._turn(record, line)
        # Of one reply come, in this order and together: its message, the marks of its request, and what it used.
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

    def _turn(self, reply: ReplyRecord, line: int) -> ReplayedTurn:
        asked = self.asked or (self.conversation and self.conversation.fork())
        if asked is None:
            raise ValueError("a reply stands before the conversation")
        origins = self.origins.first(len(asked))
        return ReplayedTurn(reply=reply, conversation=asked, origins=origins, boundary=self.boundary, line=line)


def replay_turns(path: Path) -> Iterator[ReplayedTurn]:
    """The turns of a transcript in their order; a reply that was cut off, and asked for again, is one too.

    What a torn last write left is passed over. Blocks on the disk. Raises `TranscriptCorrupt` and `OSError`.
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
