"""All checks of the doctor, and the repair of their findings."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import attrs
import trio

from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.tasks.errors import TaskDamaged, TasksFailed, UnknownTask
from coterie.mailbox.tasks.task_files import TaskFiles
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding, RepairFailed, blocking_repair
from coterie.orchestrator.doctor.log_checks import approval_findings, damage_finding, log_findings
from coterie.orchestrator.doctor.mail_checks import mail_findings
from coterie.orchestrator.doctor.orphan_processes import kill_orphan_processes, orphan_findings
from coterie.orchestrator.doctor.session_checks import stale_session_findings, worktree_findings
from coterie.orchestrator.doctor.stale_files import draft_findings, is_draft, socket_findings
from coterie.orchestrator.session.overview import is_running
from coterie.paths import home_directory
from coterie.session_directory import SESSION_FILE, TASKS, SessionDirectory


@attrs.frozen(kw_only=True)
class RepairResult:
    """Result of one repair."""

    finding: DoctorFinding
    failure: str | None = None
    """Why the repair failed; None if it succeeded."""


def check_machine(only: SessionDirectory | None = None) -> Iterator[DoctorFinding]:
    """Find orphan processes, sockets and drafts that sessions, or the session *only*, have left on this machine."""
    name = None if only is None else only.id
    yield from orphan_findings(name)
    yield from socket_findings(name)
    yield from draft_findings(home_directory() / "projects" if only is None else only.directory)


def check_session(name: str, clock: Clock) -> Iterator[DoctorFinding]:
    """Find problems in the records of the session *name*. Blocks on the disk."""
    try:
        session = SessionDirectory.find(name)
    except ConfigInvalid as exc:
        yield _unreadable(name, exc)
        return
    try:
        is_alive = is_running(session)
        if not is_alive:
            yield from stale_session_findings(session)
            yield from worktree_findings(session)
        yield from log_findings(session, is_alive=is_alive)
        yield from mail_findings(session, clock, is_alive=is_alive)
        yield from approval_findings(session)
        yield from _task_findings(session)
    except OSError as exc:
        advice = "make it readable for your user"
        yield damage_finding(session, exc.filename or session.directory, exc.strerror or str(exc), advice=advice)


async def repair(findings: Iterable[DoctorFinding]) -> list[RepairResult]:
    """Repair all repairable findings and return the results.

    Orphan processes are killed first, because they may hold files open. Cancellation stops the repair.
    """
    results: list[RepairResult] = []
    repairable = [finding for finding in findings if finding.remedy is not None]
    orphans = [finding for finding in repairable if finding.kind == "stray_process"]
    async with trio.open_nursery() as nursery:
        for finding in orphans:
            nursery.start_soon(_repair, finding, results)
    for session in {finding.session for finding in orphans}:
        with suppress(RepairFailed):  # the next run of the doctor finds the remaining processes
            await kill_orphan_processes(session)
    for finding in repairable:
        if finding.kind != "stray_process":
            await _repair(finding, results)
    return results


async def _repair(finding: DoctorFinding, results: list[RepairResult]) -> None:
    assert finding.remedy is not None
    try:
        await finding.remedy.apply()
    except (RepairFailed, MailboxError, OSError) as exc:
        results.append(RepairResult(finding=finding, failure=str(exc)))
    else:
        results.append(RepairResult(finding=finding))


def _task_findings(session: SessionDirectory) -> Iterator[DoctorFinding]:
    files = TaskFiles(session.directory / TASKS)
    try:
        ids = list(files.ids())
    except TasksFailed as exc:
        yield damage_finding(session, exc.path, exc.reason, advice="make it readable for your user")
        return
    for task_id in ids:
        try:
            files.read(task_id)
        except TaskDamaged as exc:
            advice = f"repair it, or delete it with `coterie tasks update {task_id} --status deleted`"
            yield damage_finding(session, exc.path, exc.reason, advice=advice)
        except UnknownTask:
            continue  # the user has deleted its file


def _unreadable(name: str, exc: ConfigInvalid) -> DoctorFinding:
    directory = Path(exc.source).parent
    # A client killed while it created a session leaves a directory without any record.
    is_empty = Path(exc.source).name == SESSION_FILE and all(map(is_draft, directory.iterdir()))
    return DoctorFinding(
        kind="damaged_record",
        where=exc.source,
        what=exc.reason,
        session=name,
        remedy=blocking_repair("remove the empty directory", directory.rmdir) if is_empty else None,
        advice=None if is_empty else "restore it, or move the directory away",
    )
