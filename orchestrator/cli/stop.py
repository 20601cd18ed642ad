"""`coterie stop` and `coterie background`: an end to a session that runs, or to one agent, or to waiting for it."""

import os
import signal
from contextlib import closing

import attrs
import click
import msgspec
import trio

from coterie.mailbox.errors import MailboxError
from coterie.orchestrator.cli.completion import complete_member, complete_session
from coterie.orchestrator.cli.exit_codes import Refused
from coterie.orchestrator.cli.output import open_output
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.control_socket.asking import ask_root
from coterie.orchestrator.control_socket.requests import MoveToBackground, StopAgent
from coterie.orchestrator.doctor import Mended, NotMended, end_on_record, end_strays, examine_machine, mend
from coterie.orchestrator.overview import look_at
from coterie.orchestrator.root_record import RootProcess, find_root
from coterie.orchestrator.session import Session

PATIENCE = 30.0
"""Seconds in which a root that was told to end has stopped its agents: asked, terminated, killed."""
TICK = 1.0
"""Seconds between two signs of life while one waits."""

_json = click.option("--json", "is_json", is_flag=True, help="Print JSON; see docs/doctor.md.")


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("agent", required=False, shell_complete=complete_member)
@click.option("--now", "is_at_once", is_flag=True, help="Kill the session, instead of asking it to end.")
@_json
def stop(*, session: str, agent: str | None, is_at_once: bool, is_json: bool) -> None:
    """Stop SESSION, which runs, and all its agents, or only AGENT and those it started.

    The beginning of the session's id is enough. A session can be resumed later; an agent that was stopped alone is not
    taken up again by a message. Ends with 1 if the session has not ended in time.
    """
    if agent is not None and is_at_once:
        raise click.UsageError("--now is for a whole session; without it an agent that does not end is killed too")
    found, root = _running(session)
    if agent is not None:
        trio.run(ask_root, root, StopAgent(name=agent))
        _say(is_json=is_json, session=found.id, words=f"stopped {agent} of session {found.id}", agents=[agent])
        return
    agents = [each.name for each in look_at(found).agents if each.state != "ended"]
    stopping = _Stopping(session=found, root=root)
    try:
        trio.run(stopping.kill if is_at_once else stopping.ask)
    except (NotMended, MailboxError) as exc:
        raise click.ClickException(str(exc)) from exc
    how = "killed" if is_at_once else "stopped"
    words = f"{how} session {found.id}: {', '.join(agents) or 'no agent was at work'}"
    _say(is_json=is_json, session=found.id, words=words, killed=is_at_once, agents=agents)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("agent", shell_complete=complete_member)
@_json
def background(*, session: str, agent: str, is_json: bool) -> None:
    """Let whoever waits for AGENT of SESSION go on without it; its report will come as a message."""
    found, root = _running(session)
    trio.run(ask_root, root, MoveToBackground(name=agent))
    words = f"{agent} of session {found.id} works in the background"
    _say(is_json=is_json, session=found.id, words=words, agents=[agent])


def _running(name: str) -> tuple[Session, RootProcess]:
    """A session, and its root. Raises `Refused` if it has none."""
    session = Session.find(name)
    if (root := find_root(session)) is None:
        is_at_work = look_at(session).state == "running"
        words = "is at work in a process that cannot be asked" if is_at_work else "does not run"
        raise Refused(f"session {session.id} {words}; `coterie list` shows which do")
    return session, root


def _say(*, is_json: bool, words: str, **facts: object) -> None:
    with open_output():
        click.echo(msgspec.json.encode(facts) if is_json else printable(words))


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
