"""`coterie logs`: shows the events of a session as text or JSON."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import click
import trio
from rich.console import Console
from rich.text import Text

from coterie.agents.errors import TranscriptCorrupt
from coterie.agents.events.event_reader import SessionEvent
from coterie.errors import ConfigInvalid
from coterie.orchestrator.cli.completion_candidates import complete_recipient, complete_session
from coterie.orchestrator.cli.logs.context_views import print_layers, print_removed, print_request
from coterie.orchestrator.cli.output import format_clock, one_line, sanitize
from coterie.orchestrator.cli.shared_options import find_session, json_option
from coterie.orchestrator.cli.views.event_text import SHOWN, log_entries
from coterie.orchestrator.events.follower import open_follower
from coterie.orchestrator.events.session_reader import SessionReader, read_session
from coterie.session_directory import MAIN, TRANSCRIPT, SessionDirectory
from coterie.suggestions import did_you_mean


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_recipient,
    help="Show only this agent.  [default: all; with --rendered, --layers, --dropped: main, the first agent]",
)
@click.option(
    "--follow", "-f", "is_following", is_flag=True, help="Print new events too, until main (first agent) has finished."
)
@json_option(
    text="Print JSON: one line per event (docs/events.md); with --rendered, --layers or --dropped, their content"
)
@click.option("--turn", type=int, metavar="N", help="Number, from 1, of the agent's model call for --rendered.")
@click.option(
    "--rendered",
    is_flag=True,
    help="Show the request of model call N instead of events: each message, with its number, and its origin. "
    "Needs --turn.",
)
@click.option(
    "--bytes", "as_bytes", is_flag=True, help="With --rendered, without --json: print exactly the body of the request."
)
@click.option(
    "--layers", is_flag=True, help="Show as bars how many tokens of each model call came from which source, not events."
)
@click.option(
    "--dropped",
    is_flag=True,
    help="Show what was removed from the conversation, and the files that still contain it, instead of events.",
)
def logs(
    *,
    session: str | None,
    agent: str | None,
    is_following: bool,
    is_json: bool,
    turn: int | None,
    as_bytes: bool,
    **views: bool,
) -> None:
    """Show what happened in SESSION: messages, tool calls and state changes of its agents, in order of time.

    SESSION is a session id from `coterie list`, or the first characters of it [default: the session started last in
    this directory]. --rendered, --layers, --dropped and --follow exclude each other.
    """
    if sum(views.values()) + is_following > 1:
        raise ConfigInvalid("logs", "--rendered, --layers, --dropped and --follow exclude each other; give only one")
    if views["rendered"] != (turn is not None):
        option, other = ("--turn", "--rendered") if turn is not None else ("--rendered", "--turn N")
        raise ConfigInvalid(option, f"the option can only be used with {other}; add it")
    if as_bytes and (is_json or not views["rendered"]):
        raise ConfigInvalid("--bytes", "the option needs --rendered and cannot be used with --json; change the options")
    found = find_session(session)
    check_agent(found, agent)
    directory = found.directory / "agents" / (agent or MAIN)
    with _history_of(found, directory):
        if views["layers"]:
            print_layers(directory, as_json=is_json)
        elif views["dropped"]:
            print_removed(directory, as_json=is_json)
        elif turn is not None:
            print_request(directory / TRANSCRIPT, turn, as_json=is_json, as_bytes=as_bytes)
    if any(views.values()):
        return
    log = LogPrinter(as_json=is_json)
    if not is_following:
        for event in read_session(found.directory, agent):
            log.show(event)
        return
    trio.run(_follow, found.directory, agent, log)
    click.echo(f"session {found.id} has finished", err=True)


@contextmanager
def _history_of(session: SessionDirectory, directory: Path) -> Iterator[None]:
    """Convert errors in the block for a missing or damaged transcript in the agent's *directory* to `ConfigInvalid`."""
    try:
        yield
    except FileNotFoundError as exc:
        raise ConfigInvalid(
            "--agent", f"agent {directory.name!r} of session {session.id} has no transcript yet; try again later"
        ) from exc
    except TranscriptCorrupt as exc:
        raise ConfigInvalid(str(directory / TRANSCRIPT), f"the file is damaged, {exc}; run `coterie doctor`") from exc


def check_agent(session: SessionDirectory, agent: str | None) -> None:
    """Raise `ConfigInvalid` if *agent* is not None and *session* has no agent of that name."""
    names = [path.name for path in SessionReader(session.directory).agent_directories()]
    if agent is not None and agent not in names:
        raise ConfigInvalid("--agent", f"session {session.id} has no agent {agent!r}; {did_you_mean(agent, names)}")


async def _follow(directory: Path, agent: str | None, log: "LogPrinter") -> None:
    """Print past events (of *agent* or all), then new ones until the last run of the lead (first agent) has ended."""
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
    """Printer of events on standard output, as text or as lines of JSON."""

    as_json: bool

    def show(self, event: SessionEvent) -> None:
        """Print *event* as one line of JSON, or as text with time and agent, wrapped to the terminal's width."""
        if self.as_json:
            click.echo(event.line, nl=False)
            return
        clock = format_clock(event.at)
        who = one_line(event.agent, SHOWN)
        indent = len(f"{clock} {who}  ")
        width = max(shutil.get_terminal_size((SHOWN, 0)).columns - indent, 20)
        for entry in log_entries(event):
            wrapped = Text(sanitize(entry)).wrap(Console(), width, overflow="fold")
            first, *rest = [line.plain.rstrip() for line in wrapped] or [""]
            click.echo(f"{click.style(clock, dim=True)} {click.style(who, bold=True)}  {first}")
            for line in rest:
                click.echo(f"{'':{indent}}{line}")
