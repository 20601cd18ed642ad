"""`coterie agents`: lists and checks agent definitions."""

import json
import shutil
import sys
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import attrs
import click
from rich.cells import cell_len, set_cell_size

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.definitions.store import AgentDefinitions, load_definitions, load_path
from coterie.orchestrator.cli.definition_problems import (
    count_text,
    has_errors,
    plain_text,
    problem_counts,
    problem_lines,
    problem_row,
    shown_path,
)
from coterie.orchestrator.cli.output import ExitCode, UsageRefused

WIDEST = 24
"""Widest column of names, models or tools; the description gets the rest of the line."""
LEAST = 20
"""Narrowest column of descriptions, even on a narrow terminal."""


@click.group()
def agents() -> None:
    """List and check agent definitions."""


@agents.command("list")
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def list_definitions(*, is_json: bool) -> None:
    """List agent types by the directory of their definition."""
    found = load_definitions(Path.cwd())
    definitions = list(found.by_name.values())
    if is_json:
        click.echo(json.dumps([_row(definition) for definition in definitions]))
        return
    for line in _table(definitions, shutil.get_terminal_size().columns):
        click.echo(line)
    if errors := sum(problem.severity == "error" for problem in found.problems):
        click.echo(f"{count_text(errors, 'error')}: run `coterie agents check`", err=True)


@agents.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def check(*, path: Path | None, is_json: bool) -> None:
    """Check agent definitions.

    PATH is a file or a directory [default: all definitions for the current directory]. Prints one line for each problem. Exits 1 if a problem is an error: a file that defines no agent type.
    """
    found = load_definitions(Path.cwd()) if path is None else _load(path)
    if is_json:
        click.echo(json.dumps(_summary(found)))
    else:
        for line in problem_lines(found.problems):
            click.echo(line)
        files, kinds = count_text(found.files, "file"), count_text(len(found.by_name), "agent")
        click.echo(f"{files}, {kinds}: {problem_counts(found.problems)}")
    sys.exit(ExitCode.FAILED if has_errors(found.problems) else ExitCode.DONE)


def _load(path: Path) -> AgentDefinitions:
    try:
        path.stat()
    except OSError as exc:
        raise UsageRefused(f"{path}: {exc.strerror}; give a definition file, or a directory of them") from exc
    return load_path(path)


def _summary(found: AgentDefinitions) -> dict[str, Any]:
    return {
        "files": found.files,
        "definitions": [_row(definition) for definition in found.by_name.values()],
        "problems": [problem_row(problem) for problem in found.problems],
    }


def _row(definition: AgentDefinition) -> dict[str, Any]:
    """JSON object of a definition, without its prompt and without its own servers, which may contain secrets."""
    row = attrs.asdict(definition, filter=attrs.filters.exclude("prompt", "own_servers"))
    return {**row, "source": None if definition.source is None else str(definition.source)}


def _table(definitions: Iterable[AgentDefinition], width: int) -> Iterable[str]:
    """Render one line of at most *width* columns for each definition, under a heading for each directory."""
    rows = [(_heading(definition), _cells(definition)) for definition in definitions]
    columns = [min(WIDEST, max(cell_len(cells[at]) for _, cells in rows)) for at in range(3)]
    rest = max(LEAST, width - sum(columns) - 2 * len(columns) - 2)
    for heading, group in groupby(rows, key=lambda row: row[0]):
        yield heading
        for _, cells in group:
            fitted = [_fit(cell, room) for cell, room in zip(cells, [*columns, rest], strict=True)]
            yield f"  {'  '.join(fitted)}".rstrip()


def _heading(definition: AgentDefinition) -> str:
    if definition.scope == "built-in" or definition.source is None:
        return definition.scope
    return plain_text(f"{definition.scope}  {shown_path(definition.source).parent}")


def _cells(definition: AgentDefinition) -> list[str]:
    tools = "all tools" if definition.tools is None else ", ".join(definition.tools) or "no tools"
    cells = definition.name, definition.model or "inherit", tools, definition.description
    return [plain_text(" ".join(cell.split())) for cell in cells]


def _fit(text: str, room: int) -> str:
    return set_cell_size(text, room) if cell_len(text) <= room else set_cell_size(text, room - 3) + "..."
