"""`coterie compact`: compacts the conversation of an agent on demand."""

from pathlib import Path

import click
import msgspec
import trio

from coterie.agents.root_link.job_messages import CompactionDone, CompactJob, NotCompacted, Pivot
from coterie.errors import ConfigInvalid
from coterie.orchestrator.cli.completion_candidates import complete_running_agent, complete_session
from coterie.orchestrator.cli.offline_jobs import compact_offline, offline_job_request
from coterie.orchestrator.cli.output import UsageRefused, open_output, sanitize
from coterie.orchestrator.control.client import send_request
from coterie.orchestrator.control.requests import CompactAgent
from coterie.orchestrator.session.overview import is_running
from coterie.orchestrator.session.root_lock import RootIdentity, find_root
from coterie.session_directory import MAIN, SessionDirectory

PATIENCE = 2.0
"""Seconds after which whoever waits is told for what."""


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option(
    "--agent", default=MAIN, show_default=True, shell_complete=complete_running_agent, help="Whose conversation."
)
@click.option("--from", "first", type=click.IntRange(1), metavar="N", help="Summarise message N and all behind it.")
@click.option("--up-to", "behind", type=click.IntRange(1), metavar="N", help="Summarise all before message N.")
@click.option(
    "--script", type=click.Path(path_type=Path), help="Play the model from FILE, if the session is not running."
)
@click.option("--json", "is_json", is_flag=True, help="Print JSON.")
def compact(
    *, session: str, agent: str, first: int | None, behind: int | None, script: Path | None, is_json: bool
) -> None:
    """Let a summary stand for the older part of an agent's conversation; the beginning of SESSION's id is enough.

    An agent at work is compacted before its next model call, one that waits at once. A session that does not run is
    taken up for it, without a turn. Messages are counted as `coterie logs --rendered` shows them. The transcript keeps
    all that leaves. Ends with 1 if nothing could leave, or no summary was to be had.
    """
    if first is not None and behind is not None:
        raise click.UsageError("--from and --up-to exclude each other: say which side of a message is to leave")
    found, pivot = SessionDirectory.find(session), _pivot(first, behind)
    if (root := find_root(found)) is not None:
        answer = trio.run(_ask, root, agent, pivot)
    elif is_running(found):
        raise UsageRefused(f"session {found.id} is at work in a process that cannot be asked")
    else:
        answer = _compact_offline(found, agent, pivot, script)
    if isinstance(answer, NotCompacted):
        raise (UsageRefused if answer.is_for_user else click.ClickException)(
            f"{agent} was not compacted: {answer.reason}"
        )
    _print_result(found, agent, answer, is_json=is_json)


def _pivot(first: int | None, behind: int | None) -> Pivot | None:
    if first is not None:
        return Pivot(side="from", message=first)
    return None if behind is None else Pivot(side="up_to", message=behind)


async def _ask(root: RootIdentity, agent: str, pivot: Pivot | None) -> CompactionDone | NotCompacted:
    """Have an agent of a session that runs compacted. Raises `ConfigInvalid`."""
    request = CompactAgent(name=agent)
    if pivot is not None:
        request = CompactAgent(name=agent, side=pivot.side, message=pivot.message)
    refusal: ConfigInvalid | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_print_wait_notice, agent)
        try:
            answer = await send_request(root, request)
        except ConfigInvalid as exc:
            refusal = exc
        nursery.cancel_scope.cancel()
    if refusal is not None:  # raised out here, where it is not put into a group
        raise refusal
    assert isinstance(answer, CompactionDone | NotCompacted)
    return answer


async def _print_wait_notice(agent: str) -> None:
    """Say why it takes so long."""
    await trio.sleep(PATIENCE)
    click.echo(sanitize(f"{agent} is at work: it is compacted before its next model call"), err=True)


def _compact_offline(
    session: SessionDirectory, agent: str, pivot: Pivot | None, script: Path | None
) -> CompactionDone | NotCompacted:
    """Have an agent of a session that does not run compacted. Raises `ConfigInvalid` and `UsageRefused`."""
    return trio.run(compact_offline, offline_job_request(session, agent, CompactJob(pivot=pivot), script))


def _print_result(session: SessionDirectory, agent: str, done: CompactionDone, *, is_json: bool) -> None:
    facts = {name: getattr(done, name) for name in done.__struct_fields__}
    words = (
        f"compacted {agent} of session {session.id} by {done.by}: {done.tokens_before:,} -> {done.tokens_after:,} "
        f"tokens ({done.left} messages left, {done.kept} stay), ${done.cost_usd}"
    )
    with open_output():
        click.echo(
            msgspec.json.encode({"session": session.id, "agent": agent, **facts}) if is_json else sanitize(words)
        )
