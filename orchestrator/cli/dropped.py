"""`coterie logs --dropped`: what left an agent's context, and where it can be read."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from coterie.agents.events import Compacted, ResultsCleared, ResultsStored
from coterie.orchestrator.cli.printable import one_line, printable
from coterie.orchestrator.cli.wording import SHOWN, sentence
from coterie.orchestrator.events.departures import Departure, read_departures


def print_dropped(directory: Path, *, as_json: bool) -> None:
    """Print what left the context of the agent whose *directory* this is. Raises `OSError`."""
    leaving = (each for each in read_departures(directory) if _places(each))
    if as_json:
        for each in leaving:
            click.echo(msgspec.json.encode(_mapping(each)))
        return
    is_empty = True
    for each in leaving:
        is_empty = False
        for line in _lines(each):
            click.echo(printable(line))
    if is_empty:
        click.echo(f"nothing has left the context of {one_line(directory.name, SHOWN)}")


def _lines(each: Departure) -> Iterator[str]:
    clock = time.strftime("%H:%M:%S", time.localtime(each.at)) if each.at else "--:--:--"
    yield f"{clock} before turn {each.turn}: {sentence(each.event)}"
    for place in _places(each):
        yield f"         read it in {place}"
    if isinstance(each.event, Compacted) and each.event.dropped:
        more = each.event.dropped_count - len(each.event.dropped)
        names = ", ".join(each.event.dropped) + (f", and {more} more" if more > 0 else "")
        yield f"         no longer named: {names}"


def _places(each: Departure) -> list[str]:
    """The files that have it; of a transcript up to which line. Empty for what let nothing leave."""
    match each.event:
        case ResultsStored(paths=paths):
            return list(paths)
        case ResultsCleared(where=where) | Compacted(where=where):
            return [f"{where}, lines 1 to {each.line}"] if each.line else [where]
        case _:
            return []


def _mapping(each: Departure) -> dict[str, Any]:
    where = each.event.paths if isinstance(each.event, ResultsStored) else [getattr(each.event, "where", "")]
    last = None if isinstance(each.event, ResultsStored) else each.line
    facts: dict[str, Any] = msgspec.to_builtins(each.event)
    return {"at": each.at, "turn": each.turn, "files": where, "last_line": last, **facts}
