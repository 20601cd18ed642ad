"""`coterie list`: sessions and their states."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import click

from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.orchestrator.cli.output import ExitCode, format_age, one_line, print_result, sanitize
from coterie.orchestrator.cli.shared_options import json_option
from coterie.orchestrator.session.overview import SessionOverview, read_overview
from coterie.session_directory import SessionDirectory, list_session_ids

LISTED = 20
"""Maximum number of sessions that are listed without `--all`; the newest ones are."""
SHOWN = 60
"""Maximum characters of a task, or of an agent's progress, in the list."""


@click.command("list")
@click.option("--all", "is_all", is_flag=True, help=f"List all sessions.  [default: the newest {LISTED}]")
@json_option("doctor")
def list_sessions(*, is_all: bool, is_json: bool) -> None:
    """List the sessions of all directories, newest first, with state, age, cost, directory and task.

    A session is one `coterie run` with all its agents and resumes; the id in the first column names it in other
    commands. Exits 1 if the files of a listed session cannot be read.
    """
    names = list_session_ids()[::-1]
    shown = names if is_all else names[:LISTED]
    overviews: list[SessionOverview] = []
    unreadable: list[str] = []
    for name in shown:
        try:
            overviews.append(read_overview(SessionDirectory.find(name)))
        except (ConfigInvalid, OSError) as exc:
            unreadable.append(str(exc))
    now = Clock.from_environment().now()
    rows = [_row(overview, now) for overview in overviews]
    lines = (line for overview in overviews for line in _lines(overview, now))
    facts = {"sessions": rows, "more": len(names) - len(shown)}
    empty = "" if names else "no sessions yet; start one with `coterie run`"
    print_result(facts, lines, is_json=is_json, empty=empty)
    for reason in unreadable:
        click.echo(sanitize(reason), err=True)
    if len(shown) < len(names):
        click.echo(f"older sessions that are not shown: {len(names) - len(shown)}; --all lists them", err=True)
    sys.exit(ExitCode.FAILED if unreadable else ExitCode.DONE)


def _row(overview: SessionOverview, now: float) -> dict[str, Any]:
    session = overview.session
    return {
        "session": session.id,
        "project": str(session.project),
        "task": session.task,
        "model": session.model,
        "state": overview.state,
        "reason": overview.reason,
        "started": session.started,
        "age": now - session.started,
        "starts": session.starts,
        "agents": [attrs.asdict(agent) for agent in overview.agents],
        "cost_usd": format(overview.cost, "f"),
    }


def _lines(overview: SessionOverview, now: float) -> Iterator[str]:
    session = overview.session
    first = next(iter(session.task.strip().splitlines()), "")
    project, home = str(session.project), Path.home()
    if session.project.is_relative_to(home):
        project = f"~/{session.project.relative_to(home)}"
    facts = f"{overview.state:<11}  {format_age(now - session.started):>6}  ${overview.cost:.6f}"
    yield f"{session.id}  {facts}  {sanitize(project)}  {one_line(first, SHOWN)}".rstrip()
    if len(overview.agents) > 1:
        yield f"    {', '.join(f'{agent.name} {agent.state}' for agent in overview.agents)}"
    for agent in overview.agents:
        if agent.progress is not None:
            yield f"    {agent.name}: {one_line(agent.progress, SHOWN)}"
