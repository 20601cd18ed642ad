"""`coterie costs`: costs of a session by agent, purpose and model, and the effect of the prompt cache."""

import sys
from collections import Counter
from collections.abc import Iterator
from typing import get_args

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from coterie.errors import ConfigInvalid
from coterie.orchestrator.cli.completion_candidates import complete_session
from coterie.orchestrator.cli.output import ExitCode, count_text, one_line, print_json
from coterie.orchestrator.cli.shared_options import find_session, json_option
from coterie.orchestrator.gateway.cost_report import CostReport, build_cost_report
from coterie.orchestrator.gateway.cost_totals import CostTotals, Grouping
from coterie.orchestrator.gateway.ledger import LEDGER

SHOWN = 40
"""Maximum characters of the name of an agent, a purpose or a model in the output."""


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@click.option(
    "--by",
    type=click.Choice(get_args(Grouping)),
    default="agent",
    show_default=True,
    help="Show one row for each agent, each purpose of a model call (such as turn or summary), or each model.",
)
@json_option("costs")
def costs(*, session: str | None, by: Grouping, is_json: bool) -> None:
    """Show the model calls of SESSION, their tokens and their dollars, also of a running session.

    SESSION is a session id from `coterie list`, or the first characters of it [default: the session started last in
    this directory]. Below the table are the costs that the session would have had with other use of the prompt cache.
    Exits 1 if a recorded call cannot be read (it is skipped), 2 if there is no call yet.
    """
    found = find_session(session)
    try:
        report = build_cost_report(found.directory, by)
    except FileNotFoundError as exc:
        raise ConfigInvalid("session", f"{found.id} has no costs yet; try again after its first model call") from exc
    except OSError as exc:
        raise click.ClickException(str(exc)) from exc
    if is_json:
        print_json({"session": found.id, **report.to_mapping()})
    else:
        print_costs(report)
    for damage in report.damaged:
        click.echo(f"{LEDGER}:{damage.line}: {damage.reason}; this model call is not counted", err=True)
    sys.exit(ExitCode.FAILED if report.damaged else ExitCode.DONE)


def print_costs(report: CostReport) -> None:
    """Print *report* as text: a table, and below it other possible costs, cache misses and failed summaries."""
    is_seen = sys.stdout.isatty()
    # A file gets a width that is enough for every column.
    console = Console(width=None if is_seen else 200, highlight=False, markup=False, emoji=False)
    console.print(_table(report, is_seen=is_seen))
    for line in _notes(report):
        console.print(line, soft_wrap=True)


def _table(report: CostReport, *, is_seen: bool) -> Table:
    has_spawns = report.by == "agent" and len(report.rows) > 1
    style = {"box": SIMPLE_HEAD, "padding": (0, 1, 0, 0)} if is_seen else {"box": None}
    table = Table(pad_edge=False, show_footer=True, **style)
    # On a narrow terminal the column that may wrap shrinks first, so names are cut and numbers are not.
    table.add_column(report.by, footer="total")
    names = ("calls", "read", "written", "input", "output", "cached", "dollars")
    for name, footer in zip(names, _cells(report.total), strict=True):
        table.add_column(name, footer=footer, justify="right", no_wrap=True)
    if has_spawns:
        table.add_column("subtree", justify="right", no_wrap=True)
    for row in report.rows:
        spawned = f"{row.subtree:.6f}" if row.subtree != row.spending.cost else ""
        agent = Text(f"{'  ' * row.depth}{one_line(row.name, SHOWN)}", no_wrap=True, overflow="ellipsis")
        table.add_row(agent, *_cells(row.spending), *([spawned] if has_spawns else []))
    return table


def _cells(spent: CostTotals) -> list[str]:
    used = spent.usage
    counts = (spent.requests, used.read, used.write_5m + used.write_1h, used.input, used.output)
    return [*(f"{count:,}" for count in counts), f"{100 * spent.cached_share:.0f} %", f"{spent.cost:.6f}"]


def _notes(report: CostReport) -> Iterator[str]:
    """Yield the lines below the table: costs with other use of the cache, estimates, cache misses, failed summaries."""
    other, spent = report.alternatives, report.total
    yield f"with perfect sharing  ${other.perfect_sharing:.6f}"
    yield f"without sharing       ${other.without_sharing:.6f}"
    yield f"without any cache     ${other.without_cache:.6f}"
    if spent.estimated:
        incomplete = count_text(spent.estimated, "reply", "replies")
        yield f"{incomplete} incomplete: ${spent.estimated_cost:.6f} of the total is an upper bound"
    if spent.missed:
        yield f"{spent.missed:,} tokens were expected in the cache but not read from it"
    if report.per_100_turns:
        calls = ", ".join(f"{one_line(name, SHOWN)} {rate:.1f}" for name, rate in report.per_100_turns.items())
        yield f"other calls per 100 turns: {calls}"
    breaks = Counter((each.agent, each.event.cause) for each in report.breaks)
    for (agent, cause), count in breaks.items():
        times = f", {count} times" if count > 1 else ""
        yield f"cache miss of {one_line(agent, SHOWN)}: {cause}{times}"
    for agent, count in Counter(each.agent for each in report.trips).items():
        yield f"breaker trips of {one_line(agent, SHOWN)}: {count}; its summaries failed repeatedly"
