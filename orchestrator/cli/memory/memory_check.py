"""`coterie memory check`: finds problems of memories and repairs the index."""

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import attrs
import click

from coterie.memory.checking.file_checks import check_index
from coterie.memory.checking.issue import IssueRate, StoreIssue
from coterie.memory.checking.store_check import CheckReport, check_store, repair_index
from coterie.memory.store.change import MemoryChange
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.scopes import MemoryScope
from coterie.orchestrator.cli.memory.scope_options import json_option, open_store, scope_options
from coterie.orchestrator.cli.output import ExitCode, one_line, open_output, print_json
from coterie.paths import checkout_root

SHOWN = 300
"""Characters of a finding on one line."""


@click.command()
@click.option(
    "--fix", "is_fixing", is_flag=True, help="Repair the index (the list of memories); undo with `memory undo`."
)
@scope_options
@json_option
def check(*, is_fixing: bool, place: MemoryScope, is_json: bool) -> None:
    """Find problems of memories, and print the share of memories that are contradicted, duplicate or out of date.

    Problems are: files missing from the index, index entries without a file, a line or an index that is too long,
    duplicates, contradictions that a rule can detect, files and symbols in back-ticks that the current project does not
    have, relative dates such as "yesterday", secrets, and unreadable files.

    --fix changes only the index. Exits 1 if there are problems, even if all of them were fixed.
    """
    # Memories of the user scope hold for all projects, so they are not checked against one of them.
    project = None if place.scope == "user" else checkout_root(Path.cwd())
    with open_output(), open_store(place) as store:
        checked = check_store(store, project)
        change = repair_index(store) if is_fixing else None
        fixed = [] if change is None else _fixed(checked.findings, store)
        if is_json:
            print_json(_summary(checked, fixed, change))
        else:
            _print(checked, fixed, change)
    sys.exit(ExitCode.FAILED if checked.findings else ExitCode.DONE)


def _fixed(findings: Iterable[StoreIssue], store: MemoryStore) -> list[StoreIssue]:
    """Index *findings* that no longer hold; lines are ignored, because they have moved."""
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


def _summary(checked: CheckReport, fixed: list[StoreIssue], change: MemoryChange | None) -> dict[str, object]:
    return {
        "findings": [{**attrs.asdict(finding), "fixed": finding in fixed} for finding in checked.findings],
        "pollution": {**attrs.asdict(checked.pollution), "share": checked.pollution.share},
        "notes": list(checked.notes),
        "change": None if change is None else change.id,
    }


def _print(checked: CheckReport, fixed: list[StoreIssue], change: MemoryChange | None) -> None:
    for finding in checked.findings:
        mark = "fixed: " if finding in fixed else ""
        click.echo(one_line(f"{finding.source}: {mark}{finding.kind.replace('_', ' ')}: {finding.reason}", SHOWN))
    for note in checked.notes:
        click.echo(note, err=True)
    click.echo(_pollution(checked.pollution))
    if not checked.findings:
        click.echo("no problems")
    elif change is None:
        click.echo(f"{len(checked.findings)} found")
    else:
        click.echo(f"{len(checked.findings)} found: {len(fixed)} fixed by change {change.id}")


def _pollution(counted: IssueRate) -> str:
    shares = f"{counted.contradicted} contradicted, {counted.duplicate} duplicate, {counted.dead} with dead claims"
    claims = f"{counted.dead_claims} of {counted.claims} claims about files and symbols are dead"
    return f"pollution {counted.share:.1%} of {counted.memories} memories: {shares}; {claims}"
