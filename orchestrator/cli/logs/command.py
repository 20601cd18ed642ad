"""`coterie logs`: shows the events of a session as text or JSON."""

import shutil
from pathlib import Path
from typing import Any

import attrs
import click
import trio
from rich.console import Console
from rich.text import Text

from coterie.agents.events.event_reader import SessionEvent
from coterie.errors import ConfigInvalid
from coterie.orchestrator.cli.completion_candidates import complete_recipient, complete_session
from coterie.orchestrator.cli.logs.context_history import ContextHistoryOptions, context_history_options
from coterie.orchestrator.cli.output import format_clock, one_line, open_output, sanitize
from coterie.orchestrator.cli.shared_options import find_session
from coterie.orchestrator.cli.views.event_text import SHOWN, log_entries
from coterie.orchestrator.events.follower import open_follower
from coterie.orchestrator.events.session_reader import SessionReader, read_session
from coterie.session_directory import MAIN, SessionDirectory
from coterie.suggestions import did_you_mean

NARROWEST = 20
"""Least width of an entry's text in columns."""


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@click.option("--agent", metavar="NAME", shell_complete=complete_recipient, help="Show the events of this agent only.")
@click.option("--follow", "-f", "is_following", is_flag=True, help="Continue until the run has finished.")
@click.option("--json", "as_json", is_flag=True, help="Print each event as one line of JSON; see docs/events.md.")
@context_history_options
def logs(*, session: str | None, agent: str | None, is_following: bool, as_json: bool, **given: Any) -> None:
    """Show the events of SESSION [default: newest session of this directory]. The beginning of its id is enough."""
    looking_back = ContextHistoryOptions(**given, as_json=as_json)
    looking_back.check(is_following=is_following)
    found = find_session(session)
    check_agent(found, agent)
    if looking_back.view is not None:
        looking_back.show(found, agent or MAIN)
        return
    log = LogPrinter(as_json=as_json)
    with open_output():
        if not is_following:
            for event in read_session(found.directory, agent):
                log.show(event)
            return
        trio.run(_follow, found.directory, agent, log)
    click.echo(f"session {found.id} has finished", err=True)


def check_agent(session: SessionDirectory, agent: str | None) -> None:
    """Raise `ConfigInvalid` if the session has no agent of that name."""
    names = [path.name for path in SessionReader(session.directory).agent_directories()]
    if agent is not None and agent not in names:
        raise ConfigInvalid("--agent", f"session {session.id} has no agent {agent!r}; {did_you_mean(agent, names)}")


async def _follow(directory: Path, agent: str | None, log: "LogPrinter") -> None:
    """Print events until the last run of the main agent has finished; return immediately if it already has."""
    is_over = False
    async with open_follower(directory) as follower:
        while True:
            event = follower.take_nowait()
            if event is None:
                if is_over:
                    return
                event = await anext(follower)
            if agent in (None, event.agent):
                log.show(event)
            if event.agent == MAIN and event.kind in ("started", "finished"):
                is_over = event.kind == "finished"


@attrs.frozen(kw_only=True)
class LogPrinter:
    """Prints events as text or JSON lines."""

    as_json: bool

    def show(self, event: SessionEvent) -> None:
        """Print *event* immediately."""
        if self.as_json:
            click.echo(event.line, nl=False)
            return
        clock = format_clock(event.at)
        who = one_line(event.agent, SHOWN)
        indent = len(f"{clock} {who}  ")
        width = max(shutil.get_terminal_size((SHOWN, 0)).columns - indent, NARROWEST)
        for entry in log_entries(event):
            wrapped = Text(sanitize(entry)).wrap(Console(), width, overflow="fold")
            first, *rest = [line.plain.rstrip() for line in wrapped] or [""]
            click.echo(f"{click.style(clock, dim=True)} {click.style(who, bold=True)}  {first}")
            for line in rest:
                click.echo(f"{'':{indent}}{line}")
