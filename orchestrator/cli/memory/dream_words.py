"""A dream's change in words for people: hunks with their evidence, and what they wait for."""

from collections.abc import Iterator
from typing import Any, get_args

import click
import msgspec

from coterie.memory.dreaming.change import DreamChange, RecallTest
from coterie.memory.dreaming.hunks import DreamFile, Hunk, HunkState
from coterie.orchestrator.cli.memory.wording import moment
from coterie.orchestrator.cli.printable import one_line, printable

SHOWN = 200
"""Characters of a reason, or of a sentence that would be lost."""


def dream_row(change: DreamChange) -> dict[str, Any]:
    """A change as `--json` prints it."""
    row: dict[str, Any] = msgspec.to_builtins(change)
    for file, facts in zip(change.files, row["files"], strict=True):
        facts["base_hash"] = file.base_hash
    return {**row, "group": change.group}


def dream_line(change: DreamChange) -> str:
    """A change in one line."""
    counts = ", ".join(f"{count} {state}" for state in get_args(HunkState) if (count := change.count(state)))
    session = "" if change.session is None else f"  session {change.session}"
    return printable(f"dream {change.id}  {moment(change.at)}  {counts or 'no hunks'}  ${change.cost_usd}{session}")


def dream_lines(change: DreamChange) -> Iterator[str]:
    """All of a change; in colours, which `click.echo` takes out unless a terminal shows it."""
    yield click.style(dream_line(change), bold=True)
    if change.held is not None:
        yield one_line(f"held back: {change.held}", SHOWN)
    if change.recall is not None:
        yield from _recall_lines(change.recall)
    for file in change.files:
        for hunk in file.hunks:
            yield from _hunk_lines(file, hunk)
    for note in change.notes:
        yield one_line(f"passed over: {note}", SHOWN)
    if change.count("waiting"):
        yield f"`coterie memory dream --apply {change.id}` applies what waits, --reject drops it"
    if change.count("applied"):
        yield f"`coterie memory undo {change.group}` takes it back"


def _recall_lines(recall: RecallTest) -> Iterator[str]:
    if not recall.queries:
        yield "recall: not tested, as nothing was recalled from this memory yet"
        return
    yield f"recall: {recall.found} found by {recall.queries} past queries before, {recall.kept} of them after"
    for lost in recall.lost:
        yield f"  {one_line(f'not found any more: {lost}', SHOWN)}"


def _hunk_lines(file: DreamFile, hunk: Hunk) -> Iterator[str]:
    reason = f" ({hunk.reason})" if hunk.reason else ""
    gone = ", the whole file" if file.is_removed else ""
    head = f"{hunk.number}. {file.path}:{hunk.start + 1}{gone}: {hunk.kind}, {hunk.state}{reason}"
    yield click.style(one_line(head, 2 * SHOWN), fg="yellow" if hunk.state == "waiting" else None, bold=True)
    yield f"  evidence: {', '.join(hunk.evidence) or 'none'}"
    for sentence in hunk.lost:
        yield f"  would stand nowhere any more: {one_line(sentence, SHOWN)}"
    for sign, colour, lines in (("-", "red", hunk.removed), ("+", "green", hunk.added)):
        for line in lines:
            yield click.style(printable(f"  {sign}{line.rstrip(chr(10))}"), fg=colour)
