"""`coterie memory check`: finds problems of memories, and repairs their index (`MEMORY.md`)."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
import click

from coterie.memory.checking.file_checks import check_index
from coterie.memory.checking.issue import StoreIssue
from coterie.memory.checking.store_check import CheckReport, check_store, repair_index
from coterie.memory.store.change import MemoryChange
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.scopes import MemoryScope
from coterie.orchestrator.cli.memory.scope_options import json_option, open_store, scope_options
from coterie.orchestrator.cli.output import ExitCode, one_line, print_result
from coterie.paths import checkout_root


@click.command()
@click.option(
    "--fix",
    "is_fixing",
    is_flag=True,
    help="Repair the index, the list of memories in MEMORY.md; nothing else is changed.",
)
@scope_options
@json_option
def check(*, is_fixing: bool, place: MemoryScope, is_json: bool) -> None:
    """Find problems of memories, and print the share of memories that are contradicted, duplicate or out of date.

    A problem is: a file that the index (MEMORY.md) does not list, an index line without a file, a line or an index that
    is too long, a duplicate, a contradiction, the name of a file or a symbol in back-ticks that does not exist in the
    current project (not checked with --scope user), a relative date such as "yesterday", a secret, an invalid header,
    or a file that is unreadable, too large or not text. No model is called.

    `coterie memory undo` undoes --fix. Exits 1 if there are problems, even if all were fixed, or files cannot be read.
    """
    # Memories of the user scope hold for all projects, so they are not checked against one of them.
    project = None if place.scope == "user" else checkout_root(Path.cwd())
    with open_store(place) as store:
        checked = check_store(store, project)
        change = repair_index(store) if is_fixing else None
        fixed = [] if change is None else _fixed(checked.findings, store)
        facts = {
            "findings": [{**attrs.asdict(finding), "fixed": finding in fixed} for finding in checked.findings],
            "pollution": {**attrs.asdict(checked.pollution), "share": checked.pollution.share},
            "notes": list(checked.notes),
            "change": None if change is None else change.id,
        }
        print_result(facts, _lines(checked, fixed, change), is_json=is_json)
        for note in () if is_json else checked.notes:
            click.echo(note, err=True)
    sys.exit(ExitCode.FAILED if checked.findings else ExitCode.DONE)


def _fixed(findings: Iterable[StoreIssue], store: MemoryStore) -> list[StoreIssue]:
    """Return the index problems in *findings* that the repaired index no longer has, compared without line numbers."""
    left = Counter(attrs.evolve(finding, line=None) for finding in check_index(store.index(), store.paths()))
    fixed = []
    for finding in findings:
        if finding.kind not in ("orphan", "dead_link", "long_line", "long_index"):
            continue
        key = attrs.evolve(finding, line=None)
        if left[key] == 0:
            fixed.append(finding)
        left[key] = max(0, left[key] - 1)
    return fixed


def _lines(checked: CheckReport, fixed: list[StoreIssue], change: MemoryChange | None) -> Iterator[str]:
    for finding in checked.findings:
        mark = "fixed: " if finding in fixed else ""
        yield one_line(f"{finding.source}: {mark}{finding.kind.replace('_', ' ')}: {finding.reason}", 300)
    rate = checked.pollution
    shares = f"{rate.contradicted} contradicted, {rate.duplicate} duplicate, {rate.dead} with dead claims"
    claims = f"{rate.dead_claims} of {rate.claims} claims about files and symbols are dead"
    yield f"pollution {rate.share:.1%} of {rate.memories} memories: {shares}; {claims}"
    repaired = "" if change is None else f": {len(fixed)} fixed by change {change.id}"
    yield f"{len(checked.findings)} found{repaired}" if checked.findings else "no problems"
