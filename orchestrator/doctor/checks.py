"""All checks of the doctor, and the repair of what they find."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import attrs
import trio

from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.tasks.errors import TaskDamaged, TasksFailed, UnknownTask
from coterie.mailbox.tasks.task_files import TaskFiles
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding, RepairAction, RepairFailed
from coterie.orchestrator.doctor.log_checks import approval_findings, damage_finding, log_findings
from coterie.orchestrator.doctor.mail_checks import mail_findings
from coterie.orchestrator.doctor.orphan_processes import kill_orphan_processes, orphan_findings
from coterie.orchestrator.doctor.stale_files import draft_findings, is_draft, socket_findings
from coterie.orchestrator.doctor.stale_sessions import stale_session_findings
from coterie.orchestrator.doctor.worktree_checks import worktree_findings
from coterie.orchestrator.session.overview import is_running
from coterie.paths import home_directory
from coterie.session_directory import SESSION_FILE, TASKS, SessionDirectory


@attrs.frozen(kw_only=True)
class RepairResult:
    """What came of a remedy."""

    finding: DoctorFinding
    failure: str | None = None
    """Why it could not be applied; None if it was."""


def check_machine(only: SessionDirectory | None = None) -> Iterator[DoctorFinding]:
    """What sessions have left outside of their records, or *only* one has: processes, sockets, drafts."""
    name = None if only is None else only.id
    yield from orphan_findings(name)
    yield from socket_findings(name)
    yield from draft_findings(home_directory() / "projects" if only is None else only.directory)


def check_session(name: str, clock: Clock) -> Iterator[DoctorFinding]:
    """What is wrong with the records of the session *name*. Blocks on the disk."""
    try:
        session = SessionDirectory.find(name)
    except ConfigInvalid as exc:
        yield _unreadable(name, exc)
        return
    try:
        yield from _session_findings(session, clock)
    except OSError as exc:
        advice = "make it readable for yourself"
        yield damage_finding(session, exc.filename or session.directory, exc.strerror or str(exc), advice=advice)


async def repair(findings: Iterable[DoctorFinding], tell: Callable[[RepairResult], None]) -> None:
    """Apply every remedy, and *tell* what came of each; strays first, for what they hold. Cancellation stops it."""
    curable = [finding for finding in findings if finding.remedy is not None]
    strays = [finding for finding in curable if finding.kind == "stray_process"]
    async with trio.open_nursery() as nursery:
        for finding in strays:
            nursery.start_soon(_repair, finding, tell)
    for session in {finding.session for finding in strays}:
        with suppress(RepairFailed):  # what is left is found the next time
            await kill_orphan_processes(session)
    for finding in curable:
        if finding.kind != "stray_process":
            await _repair(finding, tell)


async def _repair(finding: DoctorFinding, tell: Callable[[RepairResult], None]) -> None:
    assert finding.remedy is not None
    try:
        await finding.remedy.apply()
    except (RepairFailed, MailboxError, OSError) as exc:
        tell(RepairResult(finding=finding, failure=str(exc)))
    else:
        tell(RepairResult(finding=finding))


def _session_findings(session: SessionDirectory, clock: Clock) -> Iterator[DoctorFinding]:
    is_alive = is_running(session)
    if not is_alive:
        yield from stale_session_findings(session)
        yield from worktree_findings(session)
    yield from log_findings(session, is_alive=is_alive)
    yield from mail_findings(session, clock, is_alive=is_alive)
    yield from approval_findings(session)
    yield from _task_findings(session)


def _task_findings(session: SessionDirectory) -> Iterator[DoctorFinding]:
    files = TaskFiles(session.directory / TASKS)
    try:
        ids = list(files.ids())
    except TasksFailed as exc:
        yield damage_finding(session, exc.path, exc.reason, advice="make it readable for yourself")
        return
    for task_id in ids:
        try:
            files.read(task_id)
        except TaskDamaged as exc:
            advice = f"mend it, or give it up: `coterie tasks update {task_id} --status deleted`"
            yield damage_finding(session, exc.path, exc.reason, advice=advice)
        except UnknownTask:
            continue  # removed by hand


def _unreadable(name: str, exc: ConfigInvalid) -> DoctorFinding:
    directory = Path(exc.source).parent
    # Whoever was killed while it made a session has left a directory, and nothing that was ever recorded.
    is_empty = Path(exc.source).name == SESSION_FILE and all(map(is_draft, directory.iterdir()))
    return DoctorFinding(
        kind="damaged_record",
        where=exc.source,
        what=exc.reason,
        session=name,
        remedy=RepairAction(
            description="remove the empty directory", apply=partial(trio.to_thread.run_sync, directory.rmdir)
        )
        if is_empty
        else None,
        advice=None if is_empty else "bring it back, or move the directory away",
    )
