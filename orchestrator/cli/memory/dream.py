"""`coterie memory dream`: put memories in order now, and decide about what a dream would delete."""

import os
from pathlib import Path

import click
import trio
from click.shell_completion import CompletionItem

from coterie.agents.control.chores import Dream
from coterie.agents.errors import ConfigInvalid
from coterie.agents.events import Dreamed
from coterie.agents.models import known_models
from coterie.memory.dreaming.applying import apply_hunks, reject_hunks
from coterie.memory.dreaming.change import DreamChange, find_change, load_changes
from coterie.memory.store.change import Author
from coterie.memory.store.places import MemoryPlace
from coterie.orchestrator.cli.completion import complete_model
from coterie.orchestrator.cli.exit_codes import Refused
from coterie.orchestrator.cli.memory.dream_words import dream_line, dream_lines, dream_row
from coterie.orchestrator.cli.memory.place import find_place, json_option, open_store, place_options, print_json
from coterie.orchestrator.cli.output import open_output
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.cli.run import need_a_model
from coterie.orchestrator.kinds import of_a_kind
from coterie.orchestrator.root_process.assignment import Assignment
from coterie.orchestrator.root_process.at_rest import Done, do_at_rest
from coterie.orchestrator.settings import load_settings

TASK = "Put the memory in order."
"""What the session of a dream is called in lists."""
APPROVED = Author(by="user", why="memory dream --apply")
WAITING = ""
"""The id that means the newest dream of which something waits."""


def complete_dream(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of dreams, the newest first."""
    try:
        place = find_place(*(ctx.params.get(name) for name in ("scope", "kind", "directory")))
    except (ConfigInvalid, click.ClickException):
        return []
    changes = [change for change in load_changes(place.directory) if change.id.startswith(incomplete)]
    return [CompletionItem(change.id, help=f"{change.count('waiting')} waiting") for change in changes]


@click.command()
@click.option("--dry-run", "is_dry", is_flag=True, help="Dream, but leave the memory as it is: all of it waits.")
@click.option(
    "--apply",
    "approved",
    is_flag=False,
    flag_value=WAITING,
    metavar="[ID]",
    shell_complete=complete_dream,
    help="Apply what waits of a dream; without ID, of the newest of which something does.",
)
@click.option("--reject", "rejected", metavar="ID", shell_complete=complete_dream, help="Drop what waits of a dream.")
@click.option("--list", "is_listing", is_flag=True, help="List the dreams, and show what waits.")
@click.option("--model", shell_complete=complete_model, help="A model's id or alias.  [default: sonnet]")
@click.option("--script", type=click.Path(path_type=Path), help="Play the model from FILE, without a key.")
@place_options
@json_option
def dream(
    *,
    is_dry: bool,
    approved: str | None,
    rejected: str | None,
    is_listing: bool,
    model: str | None,
    script: Path | None,
    place: MemoryPlace,
    is_json: bool,
) -> None:
    """Consolidate the memory of this project from its last sessions, whether or not it is time for that.

    An agent works on a copy. What it adds, and what it only moves, is applied at once; what would stand nowhere any
    more waits, until --apply or --reject. `coterie memory undo dream-ID` takes a dream back. Ends with 1 if there was
    no dream, and if nothing of what was approved could be applied.
    """
    if (is_dry + is_listing + (approved is not None) + (rejected is not None)) > 1:
        raise click.UsageError("--dry-run, --apply, --reject and --list exclude each other")
    with open_output():
        if is_listing:
            _list(place, is_json=is_json)
        elif approved is not None:
            _apply(place, approved or None, is_json=is_json)
        elif rejected is not None:
            with open_store(place) as store:
                _show(reject_hunks(store, find_change(place.directory, rejected)), is_json=is_json)
        else:
            _dream(place, model, script, is_dry=is_dry, is_json=is_json)


def _list(place: MemoryPlace, *, is_json: bool) -> None:
    with open_store(place):
        changes = load_changes(place.directory)
    if is_json:
        print_json([dream_row(change) for change in changes])
        return
    if not changes:
        click.echo(printable(f"there was no dream of {place.directory} yet, or none that changed anything"), err=True)
    for change in changes:
        if change.count("waiting"):
            _show(change, is_json=False)
        else:
            click.echo(dream_line(change))


def _apply(place: MemoryPlace, name: str | None, *, is_json: bool) -> None:
    with open_store(place) as store:
        change = find_change(place.directory, name)
        if not change.count("waiting"):
            raise click.ClickException(f"nothing of dream {change.id} waits")
        before = change.count("applied")
        change = apply_hunks(store, change, {hunk.number for hunk in change.hunks}, APPROVED)
    _show(change, is_json=is_json)
    if change.count("applied") == before:
        raise click.ClickException(f"nothing of dream {change.id} could be applied")


def _dream(place: MemoryPlace, model: str | None, script: Path | None, *, is_dry: bool, is_json: bool) -> None:
    if place != find_place(None, None, None):
        raise click.UsageError("only the memory of a project is put in order by a dream; leave --scope and --dir out")
    settings, kind = of_a_kind(load_settings(Path.cwd(), {"model": model}, os.environ), Path.cwd())
    known = known_models().get(settings.model)
    need_a_model(script)
    assignment = Assignment(
        project=Path.cwd(),
        task=TASK,
        model=known.id,
        settings=settings,
        definition=None if kind is None else kind.name,
        script=None if script is None else str(script),
        chore=Dream(is_forced=True, is_dry=is_dry, deletions=settings.layers.dreaming.deletions),
    )
    told = _completed(trio.run(do_at_rest, assignment))
    if told.change is not None:
        with open_store(place):
            _show(find_change(place.directory, told.change), is_json=is_json)
    elif is_json:
        print_json(None)
    else:
        click.echo(f"there was nothing to put in order, ${told.cost_usd}")


def _completed(done: Done) -> Dreamed:
    """The end of the dream. Raises a `ClickException` if it has not come to one."""
    states = [event for event in done.told if isinstance(event, Dreamed)]
    if states and states[-1].state == "completed":
        return states[-1]
    reason = (states and states[-1].reason) or done.why_not()
    raise (Refused if done.is_for_user else click.ClickException)(printable(f"there was no dream: {reason}"))


def _show(change: DreamChange, *, is_json: bool) -> None:
    if is_json:
        print_json(dream_row(change))
        return
    for line in dream_lines(change):
        click.echo(line)
