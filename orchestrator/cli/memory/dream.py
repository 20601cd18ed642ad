"""`coterie memory dream`: runs a dream (a model tidies the memories) now; lists, applies or rejects waiting changes."""

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
import trio
from click.shell_completion import CompletionItem

from coterie.agents.events.layer_events import Dreamed
from coterie.agents.root_link.job_messages import DreamJob
from coterie.errors import ConfigInvalid
from coterie.memory.dreaming.apply_hunks import apply_hunks, reject_hunks
from coterie.memory.dreaming.dream_change import DreamChange, find_change, load_changes
from coterie.memory.dreaming.hunks import DreamFile, Hunk, HunkState
from coterie.memory.store.change import Author
from coterie.memory.store.scopes import MemoryScope
from coterie.orchestrator.cli.memory.scope_options import find_scope, json_option, open_store, scope_options
from coterie.orchestrator.cli.offline_jobs import JobResult, run_offline_job
from coterie.orchestrator.cli.output import (
    UsageRefused,
    format_time,
    one_line,
    print_json,
    print_result,
    sanitize,
)
from coterie.orchestrator.cli.shared_options import model_option, require_model, script_option
from coterie.orchestrator.session.session_request import SessionRequest
from coterie.orchestrator.settings.settings_loader import load_settings

SHOWN = 200
"""Maximum characters on one line of a reason, or of a sentence that a proposed change would delete."""


def dream_row(change: DreamChange) -> dict[str, Any]:
    """Return the changes that one dream (tidying of memories) proposed, with states, as a JSON object for `--json`."""
    row: dict[str, Any] = msgspec.to_builtins(change)
    for file, facts in zip(change.files, row["files"], strict=True):
        facts["base_hash"] = file.base_hash
    return {**row, "group": change.group}


def dream_line(change: DreamChange) -> str:
    """Return one line about a dream (tidying of memories): id, time, number of changes by state, cost and session."""
    counts = ", ".join(f"{count} {state}" for state in get_args(HunkState) if (count := change.count(state)))
    session = "" if change.session is None else f"  session {change.session}"
    return sanitize(f"dream {change.id}  {format_time(change.at)}  {counts or 'no hunks'}  ${change.cost_usd}{session}")


def dream_lines(change: DreamChange) -> Iterator[str]:
    """Yield styled lines about a dream (tidying of memories): past queries that fail after it, diffs, next commands."""
    yield click.style(dream_line(change), bold=True)
    if change.held is not None:
        yield one_line(f"held back: {change.held}", SHOWN)
    if (recall := change.recall) is not None and recall.queries:
        yield f"recall: {recall.found} found by {recall.queries} past queries before, {recall.kept} of them after"
        for lost in recall.lost:
            yield f"  {one_line(f'no longer found: {lost}', SHOWN)}"
    elif recall is not None:
        yield "recall: not tested, because no memory has been recalled yet"
    for file in change.files:
        for hunk in file.hunks:
            yield from _hunk_lines(file, hunk)
    for note in change.notes:
        yield one_line(f"skipped: {note}", SHOWN)
    if change.count("waiting"):
        yield f"apply the waiting hunks with `coterie memory dream --apply {change.id}`, or drop them with --reject"
    if change.count("applied"):
        yield f"undo the applied hunks with `coterie memory undo {change.group}`"


def _hunk_lines(file: DreamFile, hunk: Hunk) -> Iterator[str]:
    reason = f" ({hunk.reason})" if hunk.reason else ""
    gone = ", the whole file" if file.is_removed else ""
    head = f"{hunk.number}. {file.path}:{hunk.start + 1}{gone}: {hunk.kind}, {hunk.state}{reason}"
    yield click.style(one_line(head, 2 * SHOWN), fg="yellow" if hunk.state == "waiting" else None, bold=True)
    yield f"  evidence: {', '.join(hunk.evidence) or 'none'}"
    for sentence in hunk.lost:
        yield f"  would be lost: {one_line(sentence, SHOWN)}"
    for sign, colour, lines in (("-", "red", hunk.removed), ("+", "green", hunk.added)):
        for line in lines:
            yield click.style(sanitize(f"  {sign}{line.rstrip(chr(10))}"), fg=colour)


def complete_dream(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return completions: ids of dreams (tidyings) of the selected memories, newest first, with waiting changes."""
    try:
        place = find_scope(*(ctx.params.get(name) for name in ("scope", "kind", "directory")))
    except (ConfigInvalid, click.ClickException):
        return []
    changes = [change for change in load_changes(place.directory) if change.id.startswith(incomplete)]
    return [CompletionItem(change.id, help=f"{change.count('waiting')} waiting") for change in changes]


@click.command()
@click.option("--dry-run", "is_dry", is_flag=True, help="Change no memory yet: all proposed changes wait for --apply.")
@click.option(
    "--apply",
    "approved",
    is_flag=False,
    flag_value="",
    metavar="[ID]",
    shell_complete=complete_dream,
    help="Make the waiting changes of dream ID.  [default ID: newest dream with waiting changes]",
)
@click.option(
    "--reject", "rejected", metavar="ID", shell_complete=complete_dream, help="Discard the waiting changes of dream ID."
)
@click.option(
    "--list", "is_listing", is_flag=True, help="List the dreams with their ids, and show their waiting changes."
)
@model_option
@script_option("no Anthropic API key is needed")
@scope_options
@json_option
def dream(
    *,
    is_dry: bool,
    approved: str | None,
    rejected: str | None,
    is_listing: bool,
    model: str | None,
    script: Path | None,
    place: MemoryScope,
    is_json: bool,
) -> None:
    """Run a dream: an agent reads the memories of this project and its last sessions, and tidies the memories.

    Sessions start a dream by themselves, at most once a day; this command starts one now. The agent works on a copy.
    When it has finished, changes that only add or move text are made. A change that would delete or reword a statement
    waits for your decision: see --list, --apply and --reject.

    --dry-run, --list, --apply and --reject exclude each other. The last three start no dream, so --model and --script
    have no effect on them; only with them can --scope, --agent and --dir choose other memories than those of the
    project. `coterie memory undo dream-3f2a` undoes all changes of dream 3f2a. Exits 1 if the dream failed, --apply
    could make no change, or ID is unknown; 5 if there is no API key and no --script.
    """
    if (is_dry + is_listing + (approved is not None) + (rejected is not None)) > 1:
        raise click.UsageError("--dry-run, --apply, --reject and --list cannot be used together; give one of them")
    if is_listing:
        _list(place, is_json=is_json)
    elif approved is not None:
        _apply(place, approved or None, is_json=is_json)
    elif rejected is not None:
        with open_store(place) as store:
            _show(reject_hunks(store, find_change(place.directory, rejected)), is_json=is_json)
    else:
        _dream(place, model, script, is_dry=is_dry, is_json=is_json)


def _list(place: MemoryScope, *, is_json: bool) -> None:
    with open_store(place):
        changes = load_changes(place.directory)
    texts = (dream_lines(change) if change.count("waiting") else (dream_line(change),) for change in changes)
    lines, empty = chain.from_iterable(texts), f"no dream has changed {place.directory} yet"
    print_result([dream_row(change) for change in changes], lines, is_json=is_json, empty=empty)


def _apply(place: MemoryScope, name: str | None, *, is_json: bool) -> None:
    with open_store(place) as store:
        change = find_change(place.directory, name)
        if not change.count("waiting"):
            raise click.ClickException(f"dream {change.id} has no hunks (single changes) that wait; see --list")
        before = change.count("applied")
        author = Author(by="user", why="memory dream --apply")
        change = apply_hunks(store, change, {hunk.number for hunk in change.hunks}, author)
    _show(change, is_json=is_json)
    if change.count("applied") == before:
        raise click.ClickException(f"no hunk (single change) of dream {change.id} could be applied; see above")


def _dream(place: MemoryScope, model: str | None, script: Path | None, *, is_dry: bool, is_json: bool) -> None:
    if place != find_scope(None, None, None):
        raise click.UsageError(
            "a dream consolidates only the memory of a project; leave --scope, --agent and --dir out"
        )
    settings = load_settings(Path.cwd(), {"model": model}, os.environ)
    job = DreamJob(is_forced=True, is_dry=is_dry, deletions=settings.layers.dreaming.deletions)
    assignment = SessionRequest.prepare(settings, Path.cwd(), script, task="Consolidate the memory.", chore=job)
    require_model(script)
    event = _finished_change(trio.run(run_offline_job, assignment))
    if event.change is not None:
        with open_store(place):
            _show(find_change(place.directory, event.change), is_json=is_json)
    elif is_json:
        print_json(None)
    else:
        click.echo(f"nothing to consolidate, ${event.cost_usd}")


def _finished_change(done: JobResult) -> Dreamed:
    """Return the `Dreamed` event of the job *done* (tidying of memories). Raises `ClickException` if not completed."""
    states = [event for event in done.events if isinstance(event, Dreamed)]
    if states and states[-1].state == "completed":
        return states[-1]
    reason = (states and states[-1].reason) or done.failure_reason()
    raise (UsageRefused if done.is_for_user else click.ClickException)(sanitize(f"no dream: {reason}"))


def _show(change: DreamChange, *, is_json: bool) -> None:
    print_result(dream_row(change), dream_lines(change), is_json=is_json)
