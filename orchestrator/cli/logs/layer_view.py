"""`coterie logs --layers` and `--dropped`: context usage turn by turn, and the content that each layer removed."""

import heapq
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Literal, get_args

import attrs
import click
import msgspec

from coterie.agents.events.event_reader import ReplyRecorded
from coterie.agents.events.layer_events import BreakerTripped, Compacted, NotesUpdated, ResultsCleared, ResultsStored
from coterie.agents.loop.conversation.origins import What
from coterie.agents.loop.conversation.replay import ReplayedTurn, replay_turns
from coterie.orchestrator.cli.output import format_clock, one_line, print_json, print_result, sanitize
from coterie.orchestrator.cli.views.event_text import SHOWN, event_text
from coterie.orchestrator.events.event_sources import open_sources
from coterie.session_directory import TRANSCRIPT

LayerEvent = ResultsStored | ResultsCleared | NotesUpdated | Compacted | BreakerTripped


@attrs.frozen(kw_only=True)
class ContextRemoval:
    """One action of a layer, with its position in the transcript."""

    at: float
    turn: int
    """Number of the next model call."""
    line: int
    """Number of the last transcript line at that time; the removed content is on this line or an earlier one."""
    event: LayerEvent


def read_context_removals(directory: Path) -> Iterator[ContextRemoval]:
    """Yield the actions of the layers of the agent with this *directory*. Blocks on the disk; raises `OSError`."""
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
"""Part of a prompt. prompt: tools and system text; summary: replaces removed messages; restored: added after it."""
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
    """Composition of one turn's prompt, in tokens."""

    turn: int
    epoch: int
    total: int
    """Tokens of the prompt as the API counted them."""
    shares: Mapping[Share, int]
    """Tokens of each part: the total, divided in the proportion of estimates."""


def context_usage(turn: ReplayedTurn) -> ContextUsage:
    """Compute the composition of the prompt of *turn*."""
    estimates: Counter[Share] = Counter()
    for origin in turn.origins:
        share: Share = "restored" if origin.layer == "restored" else _FIXED.get(origin.what, "messages")
        estimates[share] += 0 if origin.layer == "layer 2 cut from cache" else origin.tokens
    total, estimated = turn.reply.usage.prompt, estimates.total()
    shares = {share: round(total * estimates[share] / estimated) if estimated else 0 for share in SHARES}
    return ContextUsage(turn=turn.number, epoch=turn.conversation.epoch, total=total, shares=shares)


def sparkline(values: Sequence[int], width: int) -> str:
    """Draw *values* as bars in at most *width* columns; one column shows the highest of its values."""
    if not values:
        return ""
    columns = min(len(values), max(width, 1))
    edges = [len(values) * column // columns for column in range(columns + 1)]
    heights = [max(values[start:end]) for start, end in pairwise(edges)]
    highest = max(heights) or 1
    return "".join(BARS[(len(BARS) - 1) * height // highest] for height in heights)


def print_layers(directory: Path, *, as_json: bool) -> None:
    """Print how the context of the agent with this *directory* was filled.

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
    """Total amounts that each layer removed."""
    sums: dict[str, Counter[str]] = {}
    for each in departures:
        layer, counts = _count(each.event)
        sums.setdefault(layer, Counter()).update(counts)
    for layer, counts in sums.items():
        yield f"{layer}: {', '.join(f'{unit} {count:,}' for unit, count in counts.items())}"


def _count(event: LayerEvent) -> tuple[str, Mapping[str, int]]:
    """The layer of an event, and the amounts it adds to the layer's total, by unit."""
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
    """Print the content that left the context of the agent with this *directory*. Raises `OSError`."""
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
        for line in _lines(each):
            click.echo(sanitize(line))
    if is_empty:
        click.echo(f"nothing has left the context of {one_line(directory.name, SHOWN)}")


def _lines(each: ContextRemoval) -> Iterator[str]:
    clock = format_clock(each.at)
    yield f"{clock} before turn {each.turn}: {event_text(each.event)}"
    for place in _places(each):
        yield f"         stored in {place}"
    if isinstance(each.event, Compacted) and each.event.dropped:
        more = each.event.dropped_count - len(each.event.dropped)
        names = ", ".join(each.event.dropped) + (f", and {more} more" if more > 0 else "")
        yield f"         names no longer in context: {names}"


def _places(each: ContextRemoval) -> list[str]:
    """Files that hold the removed content, for a transcript with its lines; empty if nothing was removed."""
    match each.event:
        case ResultsStored(paths=paths):
            return list(paths)
        case ResultsCleared(where=where) | Compacted(where=where):
            return [f"{where}, lines 1 to {each.line}"] if each.line else [where]
        case _:
            return []
