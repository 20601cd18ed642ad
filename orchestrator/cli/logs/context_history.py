"""Options of `coterie logs` for the context history of an agent, and the list of removed content."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import attrs
import click
import msgspec

from coterie.agents.errors import TranscriptCorrupt
from coterie.agents.events.layer_events import Compacted, ResultsCleared, ResultsStored
from coterie.errors import ConfigInvalid
from coterie.orchestrator.cli.logs.layer_view import print_layers
from coterie.orchestrator.cli.logs.request_view import print_request
from coterie.orchestrator.cli.output import format_clock, one_line, open_output, print_json, sanitize
from coterie.orchestrator.cli.views.event_text import SHOWN, event_text
from coterie.orchestrator.events.context_removals import ContextRemoval, read_context_removals
from coterie.session_directory import TRANSCRIPT, SessionDirectory


def print_removed(directory: Path, *, as_json: bool) -> None:
    """Print the content that left the context of the agent with this *directory*. Raises `OSError`."""
    leaving = (each for each in read_context_removals(directory) if _places(each))
    if as_json:
        for each in leaving:
            print_json(_mapping(each))
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


def _mapping(each: ContextRemoval) -> dict[str, Any]:
    where = each.event.paths if isinstance(each.event, ResultsStored) else [getattr(each.event, "where", "")]
    last = None if isinstance(each.event, ResultsStored) else each.line
    facts: dict[str, Any] = msgspec.to_builtins(each.event)
    return {"at": each.at, "turn": each.turn, "files": where, "last_line": last, **facts}


HistoryView = Literal["rendered", "layers", "dropped"]


def context_history_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `ContextHistoryOptions` to a command."""
    options = (
        click.option("--turn", type=int, metavar="N", help="Choose the turn (model call) for --rendered."),
        click.option(
            "--rendered", is_flag=True, help="Show the request of turn N, and the source of each part; needs --turn."
        ),
        click.option("--bytes", "as_bytes", is_flag=True, help="Print only the request body; needs --rendered."),
        click.option("--layers", is_flag=True, help="Show what filled the context of the model, turn by turn."),
        click.option(
            "--dropped", is_flag=True, help="Show what was removed from the context, and the files that keep it."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@attrs.frozen(kw_only=True)
class ContextHistoryOptions:
    """The part of an agent's context history that the user asks for."""

    turn: int | None
    rendered: bool
    as_bytes: bool
    layers: bool
    dropped: bool
    as_json: bool

    @property
    def view(self) -> HistoryView | None:
        """The requested view; None for the plain event log."""
        views: dict[HistoryView, bool] = {"rendered": self.rendered, "layers": self.layers, "dropped": self.dropped}
        return next((view for view, is_wanted in views.items() if is_wanted), None)

    def check(self, *, is_following: bool) -> None:
        """Raise `ConfigInvalid` for options that exclude each other."""
        if self.rendered + self.layers + self.dropped + is_following > 1:
            raise ConfigInvalid("logs", "give only one of --rendered, --layers, --dropped and --follow")
        if self.rendered != (self.turn is not None):
            option, other = ("--turn", "--rendered") if self.turn is not None else ("--rendered", "--turn N")
            raise ConfigInvalid(option, f"needs {other}")
        if self.as_bytes and (self.as_json or not self.rendered):
            raise ConfigInvalid("--bytes", "needs --rendered, and cannot be used with --json")

    def show(self, session: SessionDirectory, agent: str) -> None:
        """Print the requested view. Raises `ConfigInvalid` for an unknown turn, and a missing or damaged transcript."""
        directory = session.directory / "agents" / agent
        try:
            with open_output():
                match self.view:
                    case "layers":
                        print_layers(directory, as_json=self.as_json)
                    case "dropped":
                        print_removed(directory, as_json=self.as_json)
                    case _:
                        assert self.turn is not None
                        print_request(directory / TRANSCRIPT, self.turn, as_json=self.as_json, as_bytes=self.as_bytes)
        except FileNotFoundError as exc:
            raise ConfigInvalid("--agent", f"{agent!r} of session {session.id} has no transcript yet") from exc
        except TranscriptCorrupt as exc:
            raise ConfigInvalid(str(directory / TRANSCRIPT), f"is damaged, {exc}") from exc
