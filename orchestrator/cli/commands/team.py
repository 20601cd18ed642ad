"""`coterie team`: checks a team file."""

import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import attrs
import click
import msgspec

from coterie.agents.definitions.team_definition import TeamDefinition, TeamMember, plan_notice
from coterie.orchestrator.cli.output import ExitCode, count_text, one_line, print_json, print_result, sanitize
from coterie.orchestrator.cli.shared_options import json_option
from coterie.orchestrator.cli.text_table import table_lines
from coterie.orchestrator.teams.team_file import TeamInvalid, load_team


@click.group()
def team() -> None:
    """Check a team file: a TOML file that describes the agents of a team and their tasks, for `coterie run --team`."""


@team.command(short_help="Check a team file and print the team.")
@click.argument("file", type=click.Path(path_type=Path))
@json_option("teams")
def check(*, file: Path, is_json: bool) -> None:
    """Check the team file FILE, and print the team: the lead (the first agent), the other agents, and the tasks.

    FILE is the TOML file for `coterie run --team FILE`. Agent types and paths in it are looked up from the current
    directory. If there are problems, only these are printed, each with its line number in FILE, and the command exits
    with 2.
    """
    try:
        found = load_team(file, Path.cwd())
    except TeamInvalid as exc:
        if is_json:
            print_json({"team": None, "flaws": [{**attrs.asdict(flaw), "path": str(flaw.path)} for flaw in exc.flaws]})
        for flaw in () if is_json else (*exc.flaws, count_text(len(exc.flaws), "problem")):
            click.echo(sanitize(str(flaw)), err=True)
        sys.exit(ExitCode.USAGE)
    facts = {"team": msgspec.json.decode(found.to_bytes()), "flaws": []}
    print_result(facts, _lines(found, shutil.get_terminal_size().columns), is_json=is_json)


def _lines(found: TeamDefinition, width: int) -> Iterator[str]:
    lead = f"lead {found.lead_type or 'from settings'}{f', {found.lead_model}' if found.lead_model else ''}"
    counts = f"{count_text(len(found.members), 'member')}, {count_text(len(found.tasks), 'task')}"
    yield sanitize(f"team {found.name}: {lead}; {counts}")
    if found.members:
        yield from _table([("member", "type", "model", "options", "prompt"), *map(_member, found.members)], width)
    if found.tasks:
        tasks = (
            (str(found.numbers[task.key]), task.key, task.owner or "-", ", ".join(task.blocked_by) or "-", task.subject)
            for task in found.tasks
        )
        yield from _table([("task", "id", "owner", "waits for", "subject"), *tasks], width)


def _member(member: TeamMember) -> tuple[str, ...]:
    options = (
        f"plan by {plan_notice(member.plan)}" if member.plan else "",
        f"${member.budget_usd}" if member.budget_usd else "",
        f"memory {member.memory}" if member.memory else "",
        "worktree" if member.worktree else "",
        f"{member.process} process" if member.process else "",
    )
    listed = ", ".join(filter(None, options)) or "-"
    return member.name, member.type, member.model or "-", listed, member.prompt or "(waits for messages)"


def _table(rows: Sequence[tuple[str, ...]], width: int) -> Iterable[str]:
    """Yield an empty line, then *rows* as lines of a table that fits *width* columns."""
    yield ""
    yield from table_lines([[one_line(cell, width) for cell in row] for row in rows], width)
