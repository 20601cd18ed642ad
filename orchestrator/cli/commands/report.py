"""`coterie report`: writes an HTML page about a session."""

import sys
from pathlib import Path

import click

from coterie.clock import Clock
from coterie.files import replace_file
from coterie.orchestrator.cli.completion_candidates import complete_session
from coterie.orchestrator.cli.output import ExitCode, UsageRefused, open_output, print_json, sanitize
from coterie.orchestrator.cli.shared_options import find_session, json_option
from coterie.orchestrator.report.collect import collect_report
from coterie.orchestrator.report.page import GENERATOR, HEAD_BYTES, render_page
from coterie.orchestrator.report.report_data import SessionFacts, to_mapping
from coterie.session_directory import SessionDirectory

STDOUT = "-"


@click.command()
@click.argument("session", required=False, shell_complete=complete_session)
@click.option(
    "--output",
    "-o",
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help="Write to FILE; - is standard output.  [default: coterie-SESSION-ID.html in the current directory]",
)
@click.option("--force", is_flag=True, help="Overwrite FILE also if it is not a report.")
@json_option("report", "Print the content of the report as JSON instead of writing a file; not with --output")
def report(*, session: str | None, output: str | None, force: bool, is_json: bool) -> None:
    """Write an HTML file that shows the agents, messages, tool calls and costs of SESSION.

    SESSION is a session id from `coterie list`, or the first characters of it [default: the session started last in
    this directory]. A browser shows the file without a network. A report or empty file with this name is overwritten.
    Prints the path of the file. Exits 1 if a file of the session cannot be read (the report names it) or the report
    cannot be written, 2 if FILE exists and is no report.
    """
    if is_json and output is not None:
        raise click.UsageError("--json and --output cannot be used together; --json prints to standard output")
    found = find_session(session)
    path = Path(f"coterie-{found.id}.html" if output is None else output)
    is_written = not is_json and output != STDOUT
    if is_written:
        _check_path(path, is_forced=force)
    facts = _collect(found)
    with open_output():
        if is_json:
            print_json(to_mapping(facts))
        elif not is_written:
            click.echo(render_page(facts), nl=False)
        else:
            _write(path, render_page(facts))
            click.echo(path)
        for unread in facts.unread:
            click.echo(sanitize(f"{unread.where}: {unread.reason}; skipped"), err=True)
    sys.exit(ExitCode.FAILED if facts.unread else ExitCode.DONE)


def _collect(session: SessionDirectory) -> SessionFacts:
    try:
        return collect_report(session, Clock.from_environment().now())
    except OSError as exc:
        raise click.ClickException(f"cannot read {exc.filename or session.directory}: {exc.strerror}; fix it") from exc


def _check_path(path: Path, *, is_forced: bool) -> None:
    """Raise `UsageRefused` unless *path* is new, empty or an older report, or any file if *is_forced*."""
    try:
        if path.is_dir():
            raise UsageRefused(f"{path} is a directory; give a file name in it")
        if not path.parent.is_dir():
            raise UsageRefused(f"directory {path.parent} does not exist; create it, or choose another --output")
        if path.exists() and not path.is_file():
            raise UsageRefused(f"{path} is not a regular file; choose another --output, or - for standard output")
        if not is_forced and path.exists() and not _is_report(path):
            raise UsageRefused(f"{path} exists and is not a report; overwrite it with --force")
    except OSError as exc:
        raise UsageRefused(f"{path} cannot be checked: {exc.strerror}; choose another --output") from exc


def _is_report(path: Path) -> bool:
    """True if the file *path* is an older report or empty. Raises `OSError`."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    return not head or f'content="{GENERATOR}"'.encode() in head


def _write(path: Path, page: bytes) -> None:
    try:
        replace_file(path, page, durable=False)
    except OSError as exc:
        raise click.ClickException(f"{path} cannot be written: {exc.strerror}; choose another --output") from exc
