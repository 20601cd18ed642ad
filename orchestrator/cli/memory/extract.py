"""`coterie memory extract`: what is worth keeping of a session goes into the memory, because the user wants it now."""

from pathlib import Path

import click
import msgspec
import trio

from coterie.agents.control.chores import Extract
from coterie.agents.events import LayerFailed, MemoryExtracted
from coterie.orchestrator.cli.chores import chore_for
from coterie.orchestrator.cli.completion import complete_session
from coterie.orchestrator.cli.exit_codes import Refused
from coterie.orchestrator.cli.output import open_output
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.overview import is_running
from coterie.orchestrator.root_process.at_rest import Done, do_at_rest
from coterie.orchestrator.session import MAIN, Session

LAYER = "extraction"


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option("--script", type=click.Path(path_type=Path), help="Play the model from FILE, without a key.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON; see docs/memory.md.")
def extract(*, session: str, script: Path | None, is_json: bool) -> None:
    """Take what is worth keeping from SESSION into the memory of its project; the beginning of its id is enough.

    The session is taken up for it, without a turn, so it must not be running: one that runs does the same by itself
    when its agent has finished. What was looked at before is looked at again only if nothing is new. Ends with 1 if
    the model could not be asked, or what it wrote could not be kept.
    """
    found = Session.find(session)
    if is_running(found):
        reason = "it takes up memories by itself when its agent has finished"
        raise Refused(f"session {found.id} is running: {reason}; to do it by hand, wait for its end")
    done = trio.run(do_at_rest, chore_for(found, MAIN, Extract(), script))
    _say(found, done, _extracted(found, done), is_json=is_json)


def _extracted(session: Session, done: Done) -> MemoryExtracted:
    """What the agent told. Raises a `ClickException` if nothing came of it."""
    told = next((event for event in reversed(done.told) if isinstance(event, MemoryExtracted)), None)
    if done.failure is not None or told is None or (_failures(done) and not told.saved):
        words = f"no memories were taken from session {session.id}: {done.why_not()}"
        raise (Refused if done.is_for_user else click.ClickException)(printable(words))
    return told


def _failures(done: Done) -> list[str]:
    return [event.reason for event in done.told if isinstance(event, LayerFailed) and event.layer == LAYER]


def _say(session: Session, done: Done, told: MemoryExtracted, *, is_json: bool) -> None:
    facts = {"session": session.id, **{name: getattr(told, name) for name in told.__struct_fields__}}
    with open_output():
        for reason in _failures(done):
            click.echo(printable(reason), err=True)
        if is_json:
            click.echo(msgspec.json.encode(facts))
            return
        for path in told.saved:
            click.echo(printable(f"saved {path}"))
        words = "" if told.saved else "nothing worth keeping; "
        click.echo(f"{words}{told.turns} model call{'s' * (told.turns != 1)}, ${told.cost_usd}")
