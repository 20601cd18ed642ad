"""`coterie list` and `coterie stop`: which sessions there are, how they stand, and an end to one that runs."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import click
import msgspec
import trio

from coterie.agents.errors import ConfigInvalid
from coterie.clock import Clock
from coterie.mailbox.errors import MailboxError
from coterie.orchestrator.cli.completion import complete_session
from coterie.orchestrator.cli.exit_codes import ExitCode, Refused
from coterie.orchestrator.cli.output import open_output
from coterie.orchestrator.cli.printable import one_line, printable
from coterie.orchestrator.doctor import Mended, NotMended, end_on_record, end_strays, examine_machine, mend
from coterie.orchestrator.overview import Overview, look_at
from coterie.orchestrator.root_record import RootProcess, find_root
from coterie.orchestrator.session import Session, session_names

LISTED = 20
"""Sessions that are listed if not all are wanted."""
SHOWN = 60
"""Characters of a task that the list shows."""
PATIENCE = 30.0
"""Seconds in which a root that was told to end has stopped its agents: asked, terminated, killed."""
TICK = 1.0
"""Seconds between two signs of life while one waits."""

_json = click.option("--json", "is_json", is_flag=True, help="Print JSON; see docs/doctor.md.")


@click.command("list")
@click.option("--all", "is_all", is_flag=True, help=f"List all of them, not only the newest {LISTED}.")
@_json
def list_sessions(*, is_all: bool, is_json: bool) -> None:
    """List the sessions of all projects, the newest first. Ends with 1 if one of them cannot be read."""
    names = session_names()[::-1]
    shown = names if is_all else names[:LISTED]
    overviews, unreadable = _look(shown)
    now = Clock.from_environment().now()
    with open_output():
        if is_json:
            rows = [_row(overview, now) for overview in overviews]
            click.echo(msgspec.json.encode({"sessions": rows, "more": len(names) - len(shown)}))
        else:
            for line in (line for overview in overviews for line in _lines(overview, now)):
                click.echo(line)
        for reason in unreadable:
            click.echo(printable(reason), err=True)
        if len(shown) < len(names):
            click.echo(f"{len(names) - len(shown)} more; --all lists them", err=True)
    sys.exit(ExitCode.FAILED if unreadable else ExitCode.DONE)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--now", "is_at_once", is_flag=True, help="Kill it, instead of asking it to end.")
@_json
def stop(*, session: str, is_at_once: bool, is_json: bool) -> None:
    """Stop SESSION, which runs, and all its agents; the beginning of its id is enough.

    It can be resumed later. Ends with 1 if it has not ended in time.
    """
    found = Session.find(session)
    before = look_at(found)
    root = find_root(found)
    if root is None:
        words = "is at work in a process that cannot be asked" if before.state == "running" else "does not run"
        raise Refused(f"session {found.id} {words}; `coterie list` shows which do")
    agents = [agent.name for agent in before.agents if agent.state != "ended"]
    stopping = _Stopping(session=found, root=root)
    try:
        trio.run(stopping.kill if is_at_once else stopping.ask)
    except (NotMended, MailboxError) as exc:
        raise click.ClickException(str(exc)) from exc
    with open_output():
        if is_json:
            click.echo(msgspec.json.encode({"session": found.id, "killed": is_at_once, "agents": agents}))
        else:
            how = "killed" if is_at_once else "stopped"
            click.echo(f"{how} session {found.id}: {', '.join(agents) or 'no agent was at work'}")


@attrs.frozen(kw_only=True)
class _Stopping:
    """A session that is to end."""

    session: Session
    root: RootProcess

    async def ask(self) -> None:
        """Tell the root to end, and wait for it. Raises `NotMended` if it takes too long."""
        if not await self._end(signal.SIGTERM):
            hint = "it may still do so, and --now kills it"
            raise NotMended(f"session {self.session.id} has not ended in {PATIENCE:g} seconds; {hint}")

    async def kill(self) -> None:
        """Kill the root and everything that it leaves, and record that all have ended.

        Raises `NotMended` and `MailboxError`.
        """
        if not await self._end(signal.SIGKILL):
            raise NotMended(f"process {self.root.pid} was killed and has not ended")
        await end_strays(self.session.id)
        await mend(examine_machine(self.session), _tell_failure)
        await end_on_record(self.session)

    async def _end(self, number: int) -> bool:
        """Send a signal to the root; whether it has ended in time."""
        try:
            descriptor = os.pidfd_open(self.root.pid)
        except ProcessLookupError:
            return True
        with closing(os.fdopen(descriptor, "rb", buffering=0)):
            if not self.root.is_alive():
                return True  # its number is another's now
            signal.pidfd_send_signal(descriptor, number)
            with trio.move_on_after(PATIENCE):
                await self._watch(descriptor)
                return True
        return False

    async def _watch(self, descriptor: int) -> None:
        began = trio.current_time()
        while True:
            with trio.move_on_after(TICK):
                await trio.lowlevel.wait_readable(descriptor)
                return
            seconds = trio.current_time() - began
            click.echo(f"session {self.session.id} is ending: {seconds:.0f} of {PATIENCE:.0f} s", err=True)


def _tell_failure(mended: Mended) -> None:
    if mended.failure is not None:
        click.echo(printable(f"{mended.finding.where}: not fixed: {mended.failure}"), err=True)


def _look(names: list[str]) -> tuple[list[Overview], list[str]]:
    """How these sessions stand, and why it cannot be said of others."""
    overviews: list[Overview] = []
    unreadable: list[str] = []
    for name in names:
        try:
            overviews.append(look_at(Session.find(name)))
        except (ConfigInvalid, OSError) as exc:
            unreadable.append(str(exc))
    return overviews, unreadable


def _row(overview: Overview, now: float) -> dict[str, Any]:
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


def _lines(overview: Overview, now: float) -> Iterator[str]:
    session = overview.session
    first = next(iter(session.task.strip().splitlines()), "")
    facts = f"{overview.state:<11}  {_age(now - session.started):>6}  ${overview.cost:.6f}"
    yield f"{session.id}  {facts}  {printable(_shown(session.project))}  {one_line(first, SHOWN)}".rstrip()
    if len(overview.agents) > 1:
        yield f"    {', '.join(f'{agent.name} {agent.state}' for agent in overview.agents)}"


def _age(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _shown(project: Path) -> str:
    """*project* as a shell would have it."""
    own = Path.home()
    return f"~/{project.relative_to(own)}" if project.is_relative_to(own) else str(project)
