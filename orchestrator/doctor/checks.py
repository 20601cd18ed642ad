"""The checks of `coterie doctor` for a machine and a session, and the repair of the problems that they find."""

import os
import re
import socket
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import trio

from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.tasks.errors import TaskDamaged, TasksFailed, UnknownTask
from coterie.mailbox.tasks.task_files import TaskFiles
from coterie.mailbox.transports.bridge.socket_path import bridge_directory, hold_lock_file
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding, RepairFailed, blocking_repair
from coterie.orchestrator.doctor.log_checks import approval_findings, damage_finding, log_findings, mail_findings
from coterie.orchestrator.doctor.orphan_processes import kill_orphan_processes, orphan_findings
from coterie.orchestrator.doctor.session_checks import stale_session_findings, worktree_findings
from coterie.orchestrator.session.overview import is_running
from coterie.paths import home_directory
from coterie.process_identity import process_start_timestamp
from coterie.session_directory import SESSION_FILE, TASKS, SessionDirectory


def check_machine(only: SessionDirectory | None = None) -> Iterator[DoctorFinding]:
    """Find orphan processes, dead sockets and leftover temporary files of all sessions, or only of *only*."""
    name = None if only is None else only.id
    yield from orphan_findings(name)
    yield from socket_findings(name)
    yield from draft_findings(home_directory() / "projects" if only is None else only.directory)


def check_session(name: str, clock: Clock) -> Iterator[DoctorFinding]:
    """Find problems in the files and worktrees of the session *name*. Blocks on the disk."""
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


async def repair(findings: Iterable[DoctorFinding]) -> dict[DoctorFinding, str | None]:
    """Repair the findings that have a remedy. Return for each the reason why the repair failed; None after success.

    Orphan processes are killed first, because they may hold files open. Cancellation stops the repair.
    """
    failures: dict[DoctorFinding, str | None] = {}
    repairable = [finding for finding in findings if finding.remedy is not None]
    orphans = [finding for finding in repairable if finding.kind == "stray_process"]
    async with trio.open_nursery() as nursery:
        for finding in orphans:
            nursery.start_soon(_repair, finding, failures)
    for session in {finding.session for finding in orphans}:
        with suppress(RepairFailed):  # the next run of the doctor finds the remaining processes
            await kill_orphan_processes(session)
    for finding in repairable:
        if finding.kind != "stray_process":
            await _repair(finding, failures)
    return failures


async def _repair(finding: DoctorFinding, failures: dict[DoctorFinding, str | None]) -> None:
    assert finding.remedy is not None
    try:
        await finding.remedy.apply()
    except (RepairFailed, MailboxError, OSError) as exc:
        failures[finding] = str(exc)
    else:
        failures[finding] = None


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


_DRAFT = re.compile(r"\.coterie-([0-9]+)-[0-9]+\.draft")


def draft_findings(directory: Path) -> Iterator[DoctorFinding]:
    """Find temporary files ("drafts") below *directory* whose writer has ended. Ignores unreadable directories."""
    for where, _, names in os.walk(directory):
        for name in names:
            path = Path(where, name)
            match = _DRAFT.fullmatch(name)
            if match is not None and _is_abandoned(path, int(match[1])):
                yield DoctorFinding(
                    kind="draft",
                    where=str(path),
                    what=f"process {match[1]} ended while writing this temporary file; its target is unchanged",
                    remedy=blocking_repair("remove it", path.unlink, True),  # noqa: FBT003 - missing_ok
                )


def is_draft(path: Path) -> bool:
    """Return True if *path* has a name like `.coterie-PID-NUMBER.draft`: a temporary file of an atomic write."""
    return _DRAFT.fullmatch(path.name) is not None


def _is_abandoned(path: Path, writer: int) -> bool:
    began = process_start_timestamp(writer)
    if began is None:
        return path.exists()
    try:
        written = path.stat().st_mtime
    except FileNotFoundError:
        return False
    # A process that started after the draft was written only reuses the pid of the writer.
    return began > written + 1


def socket_findings(session: str | None = None) -> list[DoctorFinding]:
    """Find sockets for mail from other sessions to which no process listens: all, or only that of *session*.

    Lock files are never a finding: the kernel releases a lock when its holder dies, and the file is reused. Raises
    `OSError`.
    """
    sockets = sorted(bridge_directory().glob(f"{session or '*'}.sock"))
    return [
        DoctorFinding(
            kind="dead_socket",
            where=str(path),
            what="no process receives mail on this socket; it was left by a killed session",
            session=path.stem,
            remedy=blocking_repair("remove it", _remove_sync, path),
        )
        for path in sockets
        if path.is_socket() and _is_dead(path)
    ]


def _remove_sync(path: Path) -> None:
    # A process that is about to listen holds the lock and removes the old socket itself.
    with hold_lock_file(path.with_suffix(".lock")) as is_ours:
        if is_ours:
            path.unlink(missing_ok=True)


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as peer:
        # Do not wait if the queue of a listener is full: the error proves that it listens.
        peer.settimeout(0)
        try:
            peer.connect(str(path))
        except ConnectionRefusedError:
            return True
        except (BlockingIOError, FileNotFoundError):
            return False
    return False
