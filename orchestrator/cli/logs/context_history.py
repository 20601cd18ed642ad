"""`coterie logs --dropped`: the content that left the context of an agent, and the files that keep it."""

from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from coterie.agents.events.layer_events import Compacted, ResultsCleared, ResultsStored
from coterie.orchestrator.cli.output import format_clock, one_line, print_json, sanitize
from coterie.orchestrator.cli.views.event_text import SHOWN, event_text
from coterie.orchestrator.events.context_removals import ContextRemoval, read_context_removals


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
