"""Views of `coterie logs`: `--layers` (context size), `--dropped` (removed content), `--rendered` (model request)."""

import heapq
import itertools
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args

import attrs
import click
import msgspec

from coterie.agents.events.event_reader import ReplyRecorded
from coterie.agents.events.layer_events import BreakerTripped, Compacted, NotesUpdated, ResultsCleared, ResultsStored
from coterie.agents.loop.conversation.origins import Origin, What
from coterie.agents.loop.conversation.replay import ReplayedTurn, replay_turns
from coterie.agents.loop.conversation.request_body import splice_marker
from coterie.agents.loop.conversation.segment import Segment
from coterie.agents.loop.model.usage import Ttl
from coterie.errors import ConfigInvalid
from coterie.orchestrator.cli.output import escape_invisible, format_clock, one_line, print_json, print_result, sanitize
from coterie.orchestrator.cli.views.event_text import SHOWN, event_text
from coterie.orchestrator.events.event_sources import open_sources
from coterie.session_directory import TRANSCRIPT

LayerEvent = ResultsStored | ResultsCleared | NotesUpdated | Compacted | BreakerTripped


@attrs.frozen(kw_only=True)
class ContextRemoval:
    """One event of a layer (step that keeps the context small), such as a compaction, with its transcript position."""

    at: float
    turn: int
    """Number of the first model call after the event."""
    line: int
    """Number of the last transcript line before the event; cleared or compacted content is in the lines up to it."""
    event: LayerEvent


def read_context_removals(directory: Path) -> Iterator[ContextRemoval]:
    """Yield events of context layers, such as compactions, of the agent in *directory*. Blocks. Raises `OSError`."""
    log, transcript = (source.read_all() for source in open_sources(directory, session=directory.name))
    turn, line = 1, 0
    for sourced in heapq.merge(transcript, log, key=attrgetter("order")):
        match sourced.event.event:
            case ReplyRecorded() as reply:
                turn, line = reply.turn + reply.is_taken, sourced.line.number
            case ResultsStored() | ResultsCleared() | NotesUpdated() | Compacted() | BreakerTripped() as event:
                yield ContextRemoval(at=sourced.event.at, turn=turn, line=line, event=event)
            case _ if sourced.line.number and sourced.event.kind in ("message", "epoch"):
                line = sourced.line.number


Share = Literal["prompt", "summary", "restored", "messages", "results"]
"""Part of a model request. prompt: tools, system text; restored: added again after a summary; results: of tools."""
SHARES: tuple[Share, ...] = get_args(Share)
BARS = "▁▂▃▄▅▆▇█"
_FIXED: Mapping[What, Share] = {
    "tools": "prompt",
    "system": "prompt",
    "summary": "summary",
    "words": "restored",
    "standing": "restored",
    "skills": "restored",
    "files": "restored",
    "result": "results",
}


@attrs.frozen(kw_only=True)
class ContextUsage:
    """Number of tokens in the model request of one turn, divided by kind of content."""

    turn: int
    epoch: int
    total: int
    """Number of input tokens of the request, as the API counted them."""
    shares: Mapping[Share, int]
    """Approximate number of tokens of each part: `total`, divided in proportion to estimates of the parts."""


def context_usage(turn: ReplayedTurn) -> ContextUsage:
    """Compute the number of tokens in each part of the request of *turn*."""
    estimates: Counter[Share] = Counter()
    for origin in turn.origins:
        share: Share = "restored" if origin.layer == "restored" else _FIXED.get(origin.what, "messages")
        estimates[share] += 0 if origin.layer == "layer 2 cut from cache" else origin.tokens
    total, estimated = turn.reply.usage.prompt, estimates.total()
    shares = {share: round(total * estimates[share] / estimated) if estimated else 0 for share in SHARES}
    return ContextUsage(turn=turn.number, epoch=turn.conversation.epoch, total=total, shares=shares)


def sparkline(values: Sequence[int], width: int) -> str:
    """Return *values* as one line of bars; with more than *width* values, a bar shows the highest of several values."""
    if not values:
        return ""
    columns = min(len(values), max(width, 1))
    edges = [len(values) * column // columns for column in range(columns + 1)]
    heights = [max(values[start:end]) for start, end in pairwise(edges)]
    highest = max(heights) or 1
    return "".join(BARS[(len(BARS) - 1) * height // highest] for height in heights)


def print_layers(directory: Path, *, as_json: bool) -> None:
    """Print context size by turn, and totals removed by each reduction layer, of the agent with files in *directory*.

    Raises `TranscriptCorrupt` and `OSError`.
    """
    fillings = [context_usage(turn) for turn in replay_turns(directory / TRANSCRIPT) if turn.reply.is_taken]
    departures = list(read_context_removals(directory))
    turns = [attrs.asdict(filling) for filling in fillings]
    layers = [{"at": each.at, "turn": each.turn, **msgspec.to_builtins(each.event)} for each in departures]
    lines = (*_rows(fillings), *_sums(departures))
    print_result({"turns": turns, "layers": layers}, lines, is_json=as_json)


def _rows(fillings: Sequence[ContextUsage]) -> Iterator[str]:
    if not fillings:
        yield "no model call has been answered yet"
        return
    width = shutil.get_terminal_size((100, 0)).columns - 46  # for the figures next to the bars
    yield f"prompt tokens, turns {fillings[0].turn} to {fillings[-1].turn}"
    series = {"total": [each.total for each in fillings]}
    series |= {share: [each.shares[share] for each in fillings] for share in SHARES}
    for name, values in series.items():
        if any(values):
            figures = f"min {min(values):>9,}  max {max(values):>9,}  last {values[-1]:>9,}"
            yield f"{name:9} {sparkline(values, width - 9)}  {figures}"


def _sums(departures: Iterable[ContextRemoval]) -> Iterator[str]:
    """Yield one line for each layer (step that keeps the context small) with totals, such as its removed tokens."""
    sums: dict[str, Counter[str]] = {}
    for each in departures:
        layer, counts = _count(each.event)
        sums.setdefault(layer, Counter()).update(counts)
    for layer, counts in sums.items():
        yield f"{layer}: {', '.join(f'{unit} {count:,}' for unit, count in counts.items())}"


def _count(event: LayerEvent) -> tuple[str, Mapping[str, int]]:
    """Return the name of the layer (context-reducing step) of *event*, and the amounts to add to its totals by unit."""
    match event:
        case ResultsStored():
            taken = event.characters_before - event.characters_after
            return "layer 1, long results on disk", {"results": len(event.paths), "characters removed": taken}
        case ResultsCleared():
            taken = event.tokens_before - event.tokens_after
            return f"layer 2, old results cleared by {event.mechanism}", {
                "results": event.results,
                "tokens removed": taken,
            }
        case NotesUpdated():
            return "layer 3, session notes", {"updates": 1}
        case Compacted():
            taken = event.tokens_before - event.tokens_after
            counts = {"compactions": 1, "messages removed": event.left, "tokens removed": taken}
            return f"layer {3 if event.by == 'notes' else 4}, compaction by {event.by}", counts
        case BreakerTripped():
            return "layer 4, circuit breaker", {"trips": 1}


def print_removed(directory: Path, *, as_json: bool) -> None:
    """Print what left the context of the agent in *directory*, and the files that still have it. Raises `OSError`."""
    leaving = (each for each in read_context_removals(directory) if _places(each))
    if as_json:
        for each in leaving:
            stored = isinstance(each.event, ResultsStored)
            files = each.event.paths if isinstance(each.event, ResultsStored) else [getattr(each.event, "where", "")]
            facts = {"at": each.at, "turn": each.turn, "files": files, "last_line": None if stored else each.line}
            print_json({**facts, **msgspec.to_builtins(each.event)})
        return
    is_empty = True
    for each in leaving:
        is_empty = False
        for line in _removal_lines(each):
            click.echo(sanitize(line))
    if is_empty:
        click.echo(f"nothing was removed from the context of agent {one_line(directory.name, SHOWN)}")


def _removal_lines(each: ContextRemoval) -> Iterator[str]:
    clock = format_clock(each.at)
    yield f"{clock} before turn {each.turn}: {event_text(each.event)}"
    for place in _places(each):
        yield f"         stored in {place}"
    if isinstance(each.event, Compacted) and each.event.dropped:
        more = each.event.dropped_count - len(each.event.dropped)
        names = ", ".join(each.event.dropped) + (f", and {more} more" if more > 0 else "")
        yield f"         names no longer in context: {names}"


def _places(each: ContextRemoval) -> list[str]:
    """Return the places of the removed content, such as `FILE, lines 1 to 40`; empty if the event removed nothing."""
    match each.event:
        case ResultsStored(paths=paths):
            return list(paths)
        case ResultsCleared(where=where) | Compacted(where=where):
            return [f"{where}, lines 1 to {each.line}"] if each.line else [where]
        case _:
            return []


_MARGIN = 44
"""Width in columns of the left margin that labels each line of a printed request."""


@attrs.frozen(kw_only=True)
class RequestPart:
    """One block of a model request (a tool, system text or message content), with its position and origin."""

    index: int
    segment: Segment
    origin: Origin
    ttl: Ttl | None
    """Lifetime in the prompt cache, if the block carries a cache marker; None without a marker."""
    message: int | None
    """Number of the message that contains the block, counted from 1; None for tools and system text."""

    @property
    def sent(self) -> bytes:
        """Bytes of this block as they are in the body of the HTTP request."""
        data = self.segment.data
        return self.segment.glue + (data if self.ttl is None else splice_marker(data, self.ttl))

    @property
    def source_label(self) -> str:
        """Label for the margin of the printed request: index, kind, layer, cache marker, number of a new message."""
        layer = f", {self.origin.layer}" if self.origin.layer else ""
        marker = f"  marker {self.ttl}" if self.ttl else ""
        opening = f"  #{self.message}" if self.segment.opens_message else ""
        return f"{self.index:>4} {self.origin.what}{layer}{marker}{opening}"

    def to_mapping(self) -> dict[str, Any]:
        """Return the description of the block (index, section, origin, tokens ...) for `--json`, without its text."""
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
    """Print the model request of turn *number*. Raises `ConfigInvalid` if absent, `TranscriptCorrupt` and `OSError`."""
    turn, count = find_turn(transcript, number)
    body = turn.render().body
    if as_bytes:
        sys.stdout.buffer.write(body)
        return
    facts = {"turn": number, "epoch": turn.conversation.epoch, "asked": count, "body": body.decode()}
    parts = [part.to_mapping() for part in request_parts(turn)]
    print_result({**facts, "parts": parts}, _request_lines(turn, count, body), is_json=as_json)


def find_turn(transcript: Path, number: int) -> tuple[ReplayedTurn, int]:
    """Return the last request of turn *number*, and how often it was sent. Raises the errors of `print_request`."""
    found, count, numbers = None, 0, []
    for turn in replay_turns(transcript):
        if turn.number == number:
            found, count = turn, count + 1
        numbers.append(turn.number)
    if found is None:
        there = f"choose one from {numbers[0]} to {numbers[-1]}" if numbers else "no model call has been answered yet"
        raise ConfigInvalid("--turn", f"turn {number} is not in the transcript; {there}")
    return found, count


def request_parts(turn: ReplayedTurn) -> list[RequestPart]:
    """Return the blocks of the request of *turn*, in the order of the request."""
    ttls = {marker.index: marker.ttl for marker in turn.markers}
    segments = turn.conversation.segments
    numbers = itertools.accumulate(segment.opens_message for segment in segments)
    return [
        RequestPart(index=index, segment=segment, origin=origin, ttl=ttls.get(index), message=number or None)
        for index, (segment, origin, number) in enumerate(zip(segments, turn.origins, numbers, strict=True))
    ]


def _request_lines(turn: ReplayedTurn, count: int, body: bytes) -> Iterator[str]:
    """Yield the lines of a printed request: facts after `#`, then *body* by blocks, with labels in the left margin."""
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
