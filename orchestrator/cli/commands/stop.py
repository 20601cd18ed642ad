"""`coterie stop` and `coterie background`: stop a session or an agent, or move an agent to the background."""

import signal

import click
import trio

from coterie.mailbox.errors import MailboxError
from coterie.orchestrator.cli.completion_candidates import complete_running_agent, complete_session
from coterie.orchestrator.cli.output import UsageRefused, print_result, sanitize
from coterie.orchestrator.cli.shared_options import json_option
from coterie.orchestrator.control.client import RootExit, send_request
from coterie.orchestrator.control.requests import MoveToBackground, StopAgent
from coterie.orchestrator.doctor.checks import check_machine, repair
from coterie.orchestrator.doctor.doctor_finding import RepairFailed
from coterie.orchestrator.doctor.orphan_processes import kill_orphan_processes
from coterie.orchestrator.doctor.session_checks import mark_ended
from coterie.orchestrator.session.overview import read_overview
from coterie.orchestrator.session.root_lock import RootIdentity, find_root
from coterie.session_directory import SessionDirectory

PATIENCE = 30.0
"""Seconds in which the root (supervisor process) must exit after a signal, or say how long its agents need to stop."""
TICK = 1.0
"""Seconds between two progress lines while the command waits for the end of the session."""

_json = json_option("doctor")


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("agent", required=False, shell_complete=complete_running_agent)
@click.option(
    "--now",
    "is_at_once",
    is_flag=True,
    help="Kill all processes of the session immediately. Cannot be used with AGENT.",
)
@_json
def stop(*, session: str, agent: str | None, is_at_once: bool, is_json: bool) -> None:
    """Stop the running SESSION with all its agents, or only AGENT and the agents it started.

    SESSION is a session id from `coterie list`, or the first characters of it. Conversations are kept: `coterie resume`
    continues the session, also after --now. An agent stopped by name does not start again then, nor if it gets a
    message, unless it is the first agent.

    The agents are asked to end, and each is killed if it has not ended after 10 seconds. With AGENT, the command waits
    for their end; else for the session's end, 30 seconds or as long as the session says that its agents need. Exits 1
    if the session still runs then or --now fails, 2 if SESSION or AGENT is not running.
    """
    if agent is not None and is_at_once:
        raise click.UsageError(
            "--now cannot be used with an agent; leave it out (an agent that does not stop is killed)"
        )
    found, root = _running(session)
    if agent is not None:
        trio.run(send_request, root, StopAgent(name=agent))
        _print_result(is_json=is_json, session=found.id, words=f"stopped {agent} of session {found.id}", agents=[agent])
        return
    agents = [each.name for each in read_overview(found).agents if each.state != "ended"]
    try:
        trio.run(_kill if is_at_once else _ask, found, root)
    except (RepairFailed, MailboxError) as exc:
        raise click.ClickException(str(exc)) from exc
    how = "killed" if is_at_once else "stopped"
    words = f"{how} session {found.id}: {', '.join(agents) or 'no agent was running'}"
    _print_result(is_json=is_json, session=found.id, words=words, killed=is_at_once, agents=agents)


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.argument("agent", shell_complete=complete_running_agent)
@json_option()
def background(*, session: str, agent: str, is_json: bool) -> None:
    """Let AGENT continue in the background, so that the agent that started it no longer waits for its result.

    The result of AGENT arrives later as a message to the agent that started it. SESSION must be running; it is a
    session id from `coterie list`, or the first characters of it. Exits 2 if SESSION or AGENT is not running.
    """
    found, root = _running(session)
    trio.run(send_request, root, MoveToBackground(name=agent))
    words = f"moved {agent} of session {found.id} to the background"
    _print_result(is_json=is_json, session=found.id, words=words, agents=[agent])


def _running(name: str) -> tuple[SessionDirectory, RootIdentity]:
    """Return session *name* and its root (supervisor). Raises `UsageRefused` if no root accepts connections."""
    session = SessionDirectory.find(name)
    if (root := find_root(session)) is None:
        is_at_work = read_overview(session).state == "running"
        words = "is running, but its process does not accept connections" if is_at_work else "is not running"
        raise UsageRefused(f"session {session.id} cannot be reached: it {words}; `coterie list` shows running sessions")
    return session, root


def _print_result(*, is_json: bool, words: str, **facts: object) -> None:
    print_result(facts, [sanitize(words)], is_json=is_json)


async def _ask(session: SessionDirectory, root: RootIdentity) -> None:
    """Send SIGTERM to the root (supervisor process) and wait for its end. Raises `RepairFailed` at the time limit."""
    if (seconds := await _end(session, root, signal.SIGTERM)) is not None:
        raise RepairFailed(f"session {session.id} has not ended in {seconds:g} seconds; wait, or kill it with --now")


async def _kill(session: SessionDirectory, root: RootIdentity) -> None:
    """Kill the root (supervisor) and all processes of the session, run repairs, and record that all agents have ended.

    Raises `RepairFailed` if a process survives or the session was resumed, `MailboxError` if the record fails.
    """
    if await _end(session, root, signal.SIGKILL) is not None:
        raise RepairFailed(f"root process {root.pid} has not exited after SIGKILL; look at it with ps")
    await kill_orphan_processes(session.id)
    for finding, failure in (await repair(check_machine(session))).items():
        if failure is not None:
            click.echo(sanitize(f"{finding.where}: not fixed: {failure}"), err=True)
    await mark_ended(session)


async def _end(session: SessionDirectory, root: RootIdentity, number: int) -> float | None:
    """Send signal *number* to the root (supervisor) and wait; return None if it exited, else the seconds it had."""
    waiting = RootExit(root=root, timeout=PATIENCE)

    async def print_progress() -> None:
        began = trio.current_time()
        while True:
            await trio.sleep(TICK)
            seconds = trio.current_time() - began
            click.echo(f"session {session.id} is stopping: {seconds:.0f} of {waiting.limit:.0f} s", err=True)

    with root.open_handle() as handle:
        if handle is None:
            return None
        handle.send_signal(number)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(print_progress)
            has_ended = await waiting.wait(handle.wait_ended)
            nursery.cancel_scope.cancel()
    return None if has_ended else waiting.limit
