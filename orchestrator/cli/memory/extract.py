"""`coterie memory extract`: lets a model save facts from the conversation of a stopped session as memories."""

from pathlib import Path

import click
import trio

from coterie.agents.events.layer_events import LayerFailed, MemoryExtracted
from coterie.agents.root_link.job_messages import ExtractJob
from coterie.orchestrator.cli.completion_candidates import complete_session
from coterie.orchestrator.cli.offline_jobs import JobResult, offline_job_request, run_offline_job
from coterie.orchestrator.cli.output import UsageRefused, count_text, print_result, sanitize
from coterie.orchestrator.cli.shared_options import json_option, script_option
from coterie.orchestrator.session.overview import is_running
from coterie.session_directory import MAIN, SessionDirectory


@click.command()
@click.argument("session", shell_complete=complete_session)
@script_option("no Anthropic API key is needed")
@json_option("memory")
def extract(*, session: str, script: Path | None, is_json: bool) -> None:
    """Let a model read the conversation of SESSION, and save facts worth keeping as memories of its project.

    SESSION is a session id from `coterie list`, or the first characters of it. It must not be running: a running
    session saves memories itself when its first agent finishes. It reads only the part of the conversation that was not
    read for this purpose before, or, if there is none, the whole again. Prints the saved files and the cost. Exits 0
    also if no fact is worth keeping, 1 if the model call failed or none of the files could be written, 2 if SESSION is
    running, 5 if there is no API key and no --script.
    """
    found = SessionDirectory.find(session)
    if is_running(found):
        raise UsageRefused(f"session {found.id} is running and saves memories itself; run this command after its end")
    done = trio.run(run_offline_job, offline_job_request(found, MAIN, ExtractJob(), script))
    event = _extracted(found, done)
    facts = {"session": found.id, **{name: getattr(event, name) for name in event.__struct_fields__}}
    nothing = "" if event.saved else "nothing to save; "
    summary = f"{nothing}{count_text(event.turns, 'model call')}, ${event.cost_usd}"
    for reason in _failures(done):
        click.echo(sanitize(reason), err=True)
    print_result(facts, [*(sanitize(f"saved {path}") for path in event.saved), summary], is_json=is_json)


def _extracted(session: SessionDirectory, done: JobResult) -> MemoryExtracted:
    """Return the agent's last `MemoryExtracted` event. Raises `ClickException` if the extraction job *done* failed."""
    event = next((event for event in reversed(done.events) if isinstance(event, MemoryExtracted)), None)
    if done.failure is not None or event is None or (_failures(done) and not event.saved):
        words = f"no memories were extracted from session {session.id}: {done.failure_reason()}"
        raise (UsageRefused if done.is_for_user else click.ClickException)(sanitize(words))
    return event


def _failures(done: JobResult) -> list[str]:
    return [event.reason for event in done.events if isinstance(event, LayerFailed) and event.layer == "extraction"]
