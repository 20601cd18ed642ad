"""`coterie doctor`: what crashes have left behind, and what cannot be read."""

import sys
from pathlib import Path
from typing import Any

import click
import msgspec
import trio

from coterie.agents.sandbox.probing import offers
from coterie.clock import Clock
from coterie.orchestrator.cli.completion import complete_session
from coterie.orchestrator.cli.exit_codes import ExitCode
from coterie.orchestrator.cli.output import open_output
from coterie.orchestrator.cli.printable import printable
from coterie.orchestrator.doctor import (
    Finding,
    Mended,
    configuration_findings,
    examine_machine,
    examine_session,
    mend,
)
from coterie.orchestrator.session import Session, session_names


@click.command()
@click.option("--fix", "is_fixing", is_flag=True, help="Mend what can be mended without losing anything.")
@click.option("--session", "-s", metavar="ID", shell_complete=complete_session, help="Look at this session alone.")
@click.option("--json", "is_json", is_flag=True, help="Print JSON; see docs/doctor.md.")
def doctor(*, is_fixing: bool, session: str | None, is_json: bool) -> None:
    """Find strays, dead sockets, torn and damaged files, and what cannot be used here.

    Ends with 1 if anything was found that matters, also if all of it was fixed.
    """
    found = _examine(Session.find(session) if session else None)
    mended = _mend(found) if is_fixing else {}
    with open_output():
        if is_json:
            rows = [_row(finding, mended.get(finding)) for finding in found]
            click.echo(msgspec.json.encode({"findings": rows, "sandbox": offers()}))
        else:
            for finding in found:
                _print(finding, mended.get(finding))
            click.echo(_sum(found, mended, is_fixing=is_fixing))
            for way, missing in offers().items():
                click.echo(printable(f'sandbox = "{way}": {missing or "this machine can hold it"}'))
    sys.exit(ExitCode.FAILED if any(not finding.is_harmless for finding in found) else ExitCode.DONE)


def _examine(only: Session | None) -> list[Finding]:
    found = list(examine_machine(only))
    names = session_names() if only is None else [only.id]
    clock = Clock.from_environment()
    # On a terminal alone: in a file a bar is noise.
    with click.progressbar(names, label="sessions", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        for name in bar:
            found += examine_session(name, clock)
    return [*found, *configuration_findings(Path.cwd() if only is None else only.project)]


def _mend(found: list[Finding]) -> dict[Finding, Mended]:
    """What came of the remedies."""
    mended: dict[Finding, Mended] = {}

    def keep(done: Mended) -> None:
        mended[done.finding] = done

    trio.run(mend, found, keep)
    return mended


def _row(finding: Finding, done: Mended | None) -> dict[str, Any]:
    fixed = None if done is None else done.failure is None
    return {**finding.to_mapping(), "fixed": fixed, "failure": None if done is None else done.failure}


def _print(finding: Finding, done: Mended | None) -> None:
    click.echo(printable(f"{finding.where}: {finding.what}"))
    click.echo(printable(f"    {_outlook(finding, done)}"))


def _outlook(finding: Finding, done: Mended | None) -> str:
    """What was, will be or can be done."""
    if finding.is_harmless:
        return "harmless, and left as it is"
    if finding.remedy is None:
        return f"left as it is; {finding.advice}"
    if done is None:
        return f"--fix: {finding.remedy.words}"
    return f"fixed: {finding.remedy.words}" if done.failure is None else f"not fixed: {done.failure}"


def _sum(found: list[Finding], mended: dict[Finding, Mended], *, is_fixing: bool) -> str:
    counted = [finding for finding in found if not finding.is_harmless]
    harmless = f", {len(found) - len(counted)} harmless" if len(found) > len(counted) else ""
    if not counted:
        return f"nothing is wrong{harmless}"
    if is_fixing:
        fixed = sum(done.failure is None for done in mended.values())
        return f"{len(counted)} found{harmless}: {fixed} fixed"
    curable = sum(finding.remedy is not None for finding in counted)
    return f"{len(counted)} found{harmless}: --fix mends {curable}"
