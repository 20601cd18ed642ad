"""`coterie compact`: a summary for the older part of an agent's conversation, because the user wants it now."""

from pathlib import Path

import click
import msgspec
import trio

from coterie.agents.compaction.plan import Pivot
from coterie.agents.control.compaction_words import Compact, Compaction, NotCompacted
from coterie.agents.errors import ConfigInvalid
from coterie.orchestrator.cli.chores import chore_for
from coterie.orchestrator.cli.completion import complete_member, complete_session
from coterie.orchestrator.cli.exit_codes import Refused
from coterie.orchestrator.cli.output import open_output
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.control_socket.asking import ask_root
from coterie.orchestrator.control_socket.requests import CompactAgent
from coterie.orchestrator.overview import is_running
from coterie.orchestrator.root_process.at_rest import compact_at_rest
from coterie.orchestrator.root_record import RootProcess, find_root
from coterie.orchestrator.session import MAIN, Session

PATIENCE = 2.0
"""Seconds after which whoever waits is told for what."""


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--agent", default=MAIN, show_default=True, shell_complete=complete_member, help="Whose conversation.")
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
    found, pivot = Session.find(session), _pivot(first, behind)
    if (root := find_root(found)) is not None:
        answer = trio.run(_ask, root, agent, pivot)
    elif is_running(found):
        raise Refused(f"session {found.id} is at work in a process that cannot be asked")
    else:
        answer = _take_up(found, agent, pivot, script)
    if isinstance(answer, NotCompacted):
        raise (Refused if answer.is_for_user else click.ClickException)(f"{agent} was not compacted: {answer.reason}")
    _say(found, agent, answer, is_json=is_json)


def _pivot(first: int | None, behind: int | None) -> Pivot | None:
    if first is not None:
        return Pivot(side="from", message=first)
    return None if behind is None else Pivot(side="up_to", message=behind)


async def _ask(root: RootProcess, agent: str, pivot: Pivot | None) -> Compaction | NotCompacted:
    """Have an agent of a session that runs compacted. Raises `ConfigInvalid`."""
    request = CompactAgent(name=agent)
    if pivot is not None:
        request = CompactAgent(name=agent, side=pivot.side, message=pivot.message)
    refusal: ConfigInvalid | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_explain, agent)
        try:
            answer = await ask_root(root, request)
        except ConfigInvalid as exc:
            refusal = exc
        nursery.cancel_scope.cancel()
    if refusal is not None:  # raised out here, where it is not put into a group
        raise refusal
    assert isinstance(answer, Compaction | NotCompacted)
    return answer


async def _explain(agent: str) -> None:
    """Say why it takes so long."""
    await trio.sleep(PATIENCE)
    click.echo(printable(f"{agent} is at work: it is compacted before its next model call"), err=True)


def _take_up(session: Session, agent: str, pivot: Pivot | None, script: Path | None) -> Compaction | NotCompacted:
    """Have an agent of a session that does not run compacted. Raises `ConfigInvalid` and `Refused`."""
    return trio.run(compact_at_rest, chore_for(session, agent, Compact.of(0, pivot), script))


def _say(session: Session, agent: str, done: Compaction, *, is_json: bool) -> None:
    facts = {name: getattr(done, name) for name in done.__struct_fields__ if name != "call"}
    words = (
        f"compacted {agent} of session {session.id} by {done.by}: {done.tokens_before:,} -> {done.tokens_after:,} "
        f"tokens ({done.left} messages left, {done.kept} stay), ${done.cost_usd}"
    )
    with open_output():
        click.echo(
            msgspec.json.encode({"session": session.id, "agent": agent, **facts}) if is_json else printable(words)
        )
