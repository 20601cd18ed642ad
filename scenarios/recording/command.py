"""`coterie scenario record`: a session becomes a file that plays it again."""

from pathlib import Path

import click

from coterie.agents.errors import ConfigInvalid
from coterie.orchestrator.cli.completion import complete_session
from coterie.orchestrator.cli.exit_codes import Refused
from coterie.orchestrator.cli.output import open_output
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.session import Session
from coterie.scenarios.recording.recording import record_session
from coterie.scenarios.runner.reading import SUFFIX


@click.command()
@click.argument("session", shell_complete=complete_session)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The file; SESSION.yaml if not given, - prints it."
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def record(*, session: str, output: Path | None, force: bool) -> None:
    """Make a scenario of SESSION, which has ended: its task, what its models said, and what came of it.

    The beginning of its id is enough. What could not be recorded stands at the top of the file; see docs/testing.md.
    """
    try:
        found = Session.find(session)
        path = output or Path(f"{found.id}{SUFFIX}")
        is_printed = str(path) == "-"
        if not force and not is_printed:
            _check_free(path)
        recording = record_session(found, "recorded" if is_printed or output is None else path.stem)
        if not is_printed:
            path.write_text(recording.text)
    except ConfigInvalid as exc:
        raise Refused(str(exc)) from exc
    except OSError as exc:
        raise Refused(f"{exc.filename}: {exc.strerror}") from exc
    for doubt in recording.doubts:
        click.echo(printable(f"note: {doubt}"), err=True)
    with open_output():
        if is_printed:
            click.echo(recording.text, nl=False)
        else:
            click.echo(f"recorded session {found.id} in {path}; `coterie scenario run {path}` plays it")


def _check_free(path: Path) -> None:
    if path.exists():
        raise ConfigInvalid(str(path), "is there already; --force writes over it")
