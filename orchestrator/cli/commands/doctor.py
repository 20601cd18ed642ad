"""`coterie doctor`: finds and repairs leftovers of crashed sessions."""

import sys
from collections.abc import Mapping
from pathlib import Path

import click
import trio

from coterie.agents.sandbox.backends import available_backends
from coterie.clock import Clock
from coterie.orchestrator.cli.completion_candidates import complete_session
from coterie.orchestrator.cli.output import ExitCode, print_json, sanitize
from coterie.orchestrator.cli.shared_options import json_option
from coterie.orchestrator.doctor.checks import check_machine, check_session, repair
from coterie.orchestrator.doctor.configuration_checks import configuration_findings
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding
from coterie.session_directory import SessionDirectory, list_session_ids


@click.command()
@click.option(
    "--fix",
    "is_fixing",
    is_flag=True,
    help="Repair what can be repaired without losing data: kill orphan processes, remove stale files, move "
    "half-written lines to FILE.torn. Other problems are only printed.",
)
@click.option("--session", "-s", metavar="ID", shell_complete=complete_session, help="Check only this session.")
@json_option("doctor")
def doctor(*, is_fixing: bool, session: str | None, is_json: bool) -> None:
    """Find what crashed sessions left behind, and configuration that cannot be used.

    Checks for processes of sessions that have ended, stale sockets and temporary files, damaged files, mail that no
    agent will read, and invalid settings, agent files and skills of the project. Prints each problem with its repair,
    and the sandboxes that this machine supports. Nothing is changed without --fix. ID is a session id from `coterie
    list`, or the first characters of it.

    Exits 1 if there are problems, even if all of them were fixed. Findings that are marked as harmless do not count.
    """
    found = _examine(SessionDirectory.find(session) if session else None)
    repaired = trio.run(repair, found) if is_fixing else {}
    if is_json:
        results = {finding: {"fixed": failure is None, "failure": failure} for finding, failure in repaired.items()}
        unfixed = {"fixed": None, "failure": None}
        rows = [{**finding.to_mapping(), **results.get(finding, unfixed)} for finding in found]
        print_json({"findings": rows, "sandbox": available_backends()})
    else:
        for finding in found:
            click.echo(sanitize(f"{finding.where}: {finding.what}"))
            click.echo(sanitize(f"    {_outlook(finding, repaired)}"))
        click.echo(_summary(found, repaired, is_fixing=is_fixing))
        for way, missing in available_backends().items():
            click.echo(sanitize(f'sandbox = "{way}": {missing or "available on this machine"}'))
    sys.exit(ExitCode.FAILED if any(not finding.is_harmless for finding in found) else ExitCode.DONE)


def _examine(only: SessionDirectory | None) -> list[DoctorFinding]:
    found = list(check_machine(only))
    names = list_session_ids() if only is None else [only.id]
    clock = Clock.from_environment()
    # No progress bar in a file.
    with click.progressbar(names, label="sessions", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        for name in bar:
            found += check_session(name, clock)
    return [*found, *configuration_findings(Path.cwd() if only is None else only.project)]


def _outlook(finding: DoctorFinding, repaired: Mapping[DoctorFinding, str | None]) -> str:
    """Return the line under a finding: harmless, advice, the repair that `--fix` would do, or the repair's result."""
    if finding.is_harmless:
        return "harmless, left unchanged"
    if finding.remedy is None:
        return f"left unchanged; {finding.advice}"
    if finding not in repaired:
        return f"--fix: {finding.remedy.description}"
    failure = repaired[finding]
    return f"fixed: {finding.remedy.description}" if failure is None else f"not fixed: {failure}"


def _summary(found: list[DoctorFinding], repaired: Mapping[DoctorFinding, str | None], *, is_fixing: bool) -> str:
    counted = [finding for finding in found if not finding.is_harmless]
    harmless = f", {len(found) - len(counted)} harmless" if len(found) > len(counted) else ""
    if not counted:
        return f"no problems{harmless}"
    if is_fixing:
        fixed = sum(failure is None for failure in repaired.values())
        return f"{len(counted)} found{harmless}: {fixed} fixed"
    curable = sum(finding.remedy is not None for finding in counted)
    return f"{len(counted)} found{harmless}: --fix repairs {curable}"
