"""`coterie logs --turn N --rendered`: the request of one turn, byte for byte, with the source of each part."""

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from coterie.agents.loop.conversation.origins import Origin
from coterie.agents.loop.conversation.replay import ReplayedTurn, replay_turns
from coterie.agents.loop.conversation.request_body import splice_marker
from coterie.agents.loop.conversation.segment import Segment
from coterie.agents.loop.model.usage import Ttl
from coterie.errors import ConfigInvalid
from coterie.orchestrator.cli.output import escape_invisible, print_result

_MARGIN = 44
"""Width of the margin in columns."""


@attrs.frozen(kw_only=True)
class RequestPart:
    """One block of a request, with its position."""

    index: int
    segment: Segment
    origin: Origin
    ttl: Ttl | None
    """Lifetime of the cache marker on the block; None without a marker."""
    message: int | None
    """Number of the message that contains the block, from 1; None for tools and system."""

    @property
    def sent(self) -> bytes:
        """Bytes of the block in the request body."""
        data = self.segment.data
        return self.segment.glue + (data if self.ttl is None else splice_marker(data, self.ttl))

    @property
    def source_label(self) -> str:
        """Short label of the block: its index and source."""
        layer = f", {self.origin.layer}" if self.origin.layer else ""
        marker = f"  marker {self.ttl}" if self.ttl else ""
        opening = f"  #{self.message}" if self.segment.opens_message else ""
        return f"{self.index:>4} {self.origin.what}{layer}{marker}{opening}"

    def to_mapping(self) -> dict[str, Any]:
        """Convert the block to its JSON object."""
        return {
            "index": self.index,
            "section": self.segment.section,
            "role": self.segment.role,
            "message": self.message,
            "origin": self.origin.what,
            "layer": self.origin.layer,
            "tokens": self.origin.tokens,
            "is_marked": self.ttl is not None,
        }


def print_request(transcript: Path, number: int, *, as_json: bool, as_bytes: bool) -> None:
    """Print the request of a turn. Raises `ConfigInvalid` for an unknown turn, `TranscriptCorrupt`, `OSError`."""
    turn, count = find_turn(transcript, number)
    body = turn.render().body
    if as_bytes:
        sys.stdout.buffer.write(body)
        return
    facts = {"turn": number, "epoch": turn.conversation.epoch, "asked": count, "body": body.decode()}
    parts = [part.to_mapping() for part in request_parts(turn)]
    print_result({**facts, "parts": parts}, _lines(turn, count, body), is_json=as_json)


def find_turn(transcript: Path, number: int) -> tuple[ReplayedTurn, int]:
    """Find the last request of turn *number*, and how often it was sent. Raises as `print_request` does."""
    found, count, numbers = None, 0, []
    for turn in replay_turns(transcript):
        if turn.number == number:
            found, count = turn, count + 1
        numbers.append(turn.number)
    if found is None:
        there = f"it has turns {numbers[0]} to {numbers[-1]}" if numbers else "no model call has been answered yet"
        raise ConfigInvalid("--turn", f"{number} is not in the transcript; {there}")
    return found, count


def request_parts(turn: ReplayedTurn) -> list[RequestPart]:
    """The blocks of the request in order."""
    ttls = {marker.index: marker.ttl for marker in turn.markers}
    segments = turn.conversation.segments
    numbers = itertools.accumulate(segment.opens_message for segment in segments)
    return [
        RequestPart(index=index, segment=segment, origin=origin, ttl=ttls.get(index), message=number or None)
        for index, (segment, origin, number) in enumerate(zip(segments, turn.origins, numbers, strict=True))
    ]


def _lines(turn: ReplayedTurn, count: int, body: bytes) -> Iterator[str]:
    """Render the body with one block per line and a margin; without the margin the lines are the body."""
    parts = request_parts(turn)
    inner = b"".join(part.sent for part in parts)
    start = body.index(inner)
    yield from (f"# {line}" for line in _facts(turn, count))
    yield _line("     parameters", body[:start])
    for part in parts:
        yield _line(part.source_label, part.sent)
    yield _line("     end", body[start + len(inner) :])


def _line(margin: str, sent: bytes) -> str:
    # Escaped, because the text could control the terminal; --bytes prints it unchanged.
    first, *rest = escape_invisible(sent.decode()).split("\n")
    return "\n".join([f"{margin:{_MARGIN}}| {first}", *(f"{'':{_MARGIN}}| {line}" for line in rest)])


def _facts(turn: ReplayedTurn, count: int) -> Iterator[str]:
    used = turn.reply.usage
    yield f"turn {turn.number}, epoch {turn.conversation.epoch}: {used.prompt:,} tokens, {used.read:,} from the cache"
    if count > 1:
        yield f"sent {count} times, because the reply was cut off; this is the last request"
    if (boundary := turn.boundary) is not None:
        became = f"{boundary.tokens_before:,} -> {boundary.tokens_after:,} tokens"
        left = f"{boundary.left} messages removed, {boundary.kept} kept"
        yield f"compacted before turn {boundary.turn}, by {boundary.by}: {left}; {became}"
