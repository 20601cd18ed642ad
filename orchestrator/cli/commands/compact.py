"""`coterie compact`: compacts the conversation of an agent on demand."""

from pathlib import Path

import click
import trio

from coterie.agents.root_link.job_messages import CompactionDone, CompactJob, NotCompacted
from coterie.errors import ConfigInvalid
from coterie.orchestrator.cli.completion_candidates import complete_running_agent, complete_session
from coterie.orchestrator.cli.offline_jobs import compact_offline, offline_job_request
from coterie.orchestrator.cli.output import UsageRefused, print_result, sanitize
from coterie.orchestrator.cli.shared_options import json_option, script_option
from coterie.orchestrator.control.client import send_request
from coterie.orchestrator.control.requests import CompactAgent
from coterie.orchestrator.session.overview import is_running
from coterie.orchestrator.session.root_lock import RootIdentity, find_root
from coterie.session_directory import MAIN, SessionDirectory

PATIENCE = 2.0
"""Seconds after which the command prints that it waits for the agent's next model call."""


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option(
    "--agent",
    default=MAIN,
    show_default=True,
    shell_complete=complete_running_agent,
    help="Agent whose conversation is compacted; main is the first agent.",
)
@click.option(
    "--from",
    "first",
    type=click.IntRange(1),
    metavar="N",
    help="Summarise message N and all later ones. Cannot be used with --up-to.",
)
@click.option("--up-to", "behind", type=click.IntRange(1), metavar="N", help="Summarise the messages before message N.")
@script_option("no Anthropic API key is needed; no effect while the session runs")
@json_option()
def compact(
    *, session: str, agent: str, first: int | None, behind: int | None, script: Path | None, is_json: bool
) -> None:
    """Replace a part of an agent's conversation by a summary, so that later model calls send fewer tokens.

    By default the older messages are summarised; --from or --up-to choose another part. N is the number of a message in
    the conversation, from 1. To see the numbers, run `coterie logs SESSION --agent NAME --rendered --turn T`, with the
    number T of its last model call. The transcript on disk keeps every message. The summary usually costs a model call.

    SESSION is a session id from `coterie list`, or the first characters of it; it need not be running. If the agent is
    at work, the command waits for its next model call. Exits 1 if there was nothing to compact or no summary was made,
    5 if there is no API key and no --script for a session that is not running.
    """
    if first is not None and behind is not None:
        raise click.UsageError("--from and --up-to cannot be used together; give one of them")
    found, request = SessionDirectory.find(session), CompactAgent(name=agent)
    if first is not None:
        request = CompactAgent(name=agent, side="from", message=first)
    elif behind is not None:
        request = CompactAgent(name=agent, side="up_to", message=behind)
    if (root := find_root(found)) is not None:
        answer = trio.run(_ask, root, request)
    elif is_running(found):
        raise UsageRefused(
            f"session {found.id} is running, but its process does not accept connections; wait for its end"
        )
    else:
        answer = trio.run(compact_offline, offline_job_request(found, agent, CompactJob(pivot=request.pivot()), script))
    if isinstance(answer, NotCompacted):
        raise (UsageRefused if answer.is_for_user else click.ClickException)(
            f"the conversation of {agent} was not compacted: {answer.reason}"
        )
    facts = {name: getattr(answer, name) for name in answer.__struct_fields__}
    words = (
        f"compacted {agent} of session {found.id} by {answer.by}: {answer.tokens_before:,} -> {answer.tokens_after:,} "
        f"tokens ({answer.left} messages summarised, {answer.kept} kept), ${answer.cost_usd}"
    )
    print_result({"session": found.id, "agent": agent, **facts}, [sanitize(words)], is_json=is_json)


async def _ask(root: RootIdentity, request: CompactAgent) -> CompactionDone | NotCompacted:
    """Ask the root (supervisor) to compact; print a notice if slow. Raises `ConfigInvalid` if refused or unanswered."""
    refusal: ConfigInvalid | None = None

    async def print_wait_notice() -> None:
        await trio.sleep(PATIENCE)
        click.echo(sanitize(f"{request.name} is running; it is compacted before its next model call"), err=True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(print_wait_notice)
        try:
            answer = await send_request(root, request)
        except ConfigInvalid as exc:
            refusal = exc
        nursery.cancel_scope.cancel()
    if refusal is not None:  # raised outside the nursery, which would wrap it in a group
        raise refusal
    assert isinstance(answer, CompactionDone | NotCompacted)
    return answer
