"""A transcript turn by turn: the request of each, as it was sent, byte for byte."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from coterie.agents.conversation.conversation import Conversation
from coterie.agents.conversation.markers import FIVE_MINUTES, Lifetimes, Marker, choose_markers
from coterie.agents.conversation.origins import Origin, Origins
from coterie.agents.conversation.records import (
    Boundary,
    EpochRecord,
    MarksRecord,
    MessageRecord,
    Record,
    ReplyRecord,
    read_line,
)
from coterie.agents.conversation.render import Rendered
from coterie.agents.conversation.transcript import apply_record
from coterie.agents.errors import TranscriptCorrupt


@attrs.frozen(kw_only=True, eq=False)
class Turn:
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
    def lifetimes(self) -> Lifetimes:
        """How long entries at its markers were to live."""
        names = attrs.fields_dict(Lifetimes)
        return Lifetimes(**dict(zip(names, self.reply.lives, strict=True))) if self.reply.lives else FIVE_MINUTES

    @property
    def markers(self) -> tuple[Marker, ...]:
        """The cache markers of its request."""
        return choose_markers(self.conversation.prefix, self.conversation.marks, ttl=self.lifetimes)

    def render(self) -> Rendered:
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

    def take(self, record: Record, line: int) -> Turn | None:
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

    def _turn(self, reply: ReplyRecord, line: int) -> Turn:
        asked = self.asked or (self.conversation and self.conversation.fork())
        if asked is None:
            raise ValueError("a reply stands before the conversation")
        origins = self.origins.first(len(asked))
        return Turn(reply=reply, conversation=asked, origins=origins, boundary=self.boundary, line=line)


def replay_turns(path: Path) -> Iterator[Turn]:
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
                turn = None if record is None else replay.take(record, number)
            except ValueError as exc:
                if not line.endswith(b"\n"):
                    return
                raise TranscriptCorrupt(number, str(exc)) from exc
            if turn is not None:
                yield turn
