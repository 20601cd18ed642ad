"""One look at everything, and the mending of what was found."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import attrs
import trio

from coterie.agents.errors import ConfigInvalid
from coterie.agents.home import home
from coterie.clock import Clock
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.tasks.errors import TaskDamaged, TasksFailed, UnknownTask
from coterie.mailbox.tasks.files import TaskFiles
from coterie.orchestrator.doctor.approvals import approval_findings
from coterie.orchestrator.doctor.finding import Finding, NotMended, Remedy
from coterie.orchestrator.doctor.flaws import damage
from coterie.orchestrator.doctor.leftovers import draft_findings, is_draft
from coterie.orchestrator.doctor.logs import log_findings
from coterie.orchestrator.doctor.mail import mail_findings
from coterie.orchestrator.doctor.processes import end_strays, stray_findings
from coterie.orchestrator.doctor.sockets import socket_findings
from coterie.orchestrator.doctor.standing import standing_findings
from coterie.orchestrator.doctor.worktrees import worktree_findings
from coterie.orchestrator.overview import is_running
from coterie.orchestrator.session import FILE, TASKS, Session


@attrs.frozen(kw_only=True)
class Mended:
    """What came of a remedy."""

    finding: Finding
    failure: str | None = None
    """Why it could not be applied; None if it was."""


def examine_machine(only: Session | None = None) -> Iterator[Finding]:
    """What sessions have left outside of their records, or *only* one has: processes, sockets, drafts."""
    name = None if only is None else only.id
    yield from stray_findings(name)
    yield from socket_findings(name)
    yield from draft_findings(home() / "projects" if only is None else only.directory)


def examine_session(name: str, clock: Clock) -> Iterator[Finding]:
    """What is wrong with the records of the session *name*. Blocks on the disk."""
    try:
        session = Session.find(name)
    except ConfigInvalid as exc:
        yield _unreadable(name, exc)
        return
    try:
        yield from _in_session(session, clock)
    except OSError as exc:
        advice = "make it readable for yourself"
        yield damage(session, exc.filename or session.directory, exc.strerror or str(exc), advice=advice)


async def mend(findings: Iterable[Finding], tell: Callable[[Mended], None]) -> None:
    """Apply every remedy, and *tell* what came of each; strays first, for what they hold. Cancellation stops it."""
    curable = [finding for finding in findings if finding.remedy is not None]
    strays = [finding for finding in curable if finding.kind == "stray_process"]
    async with trio.open_nursery() as nursery:
        for finding in strays:
            nursery.start_soon(_mend, finding, tell)
    for session in {finding.session for finding in strays}:
        with suppress(NotMended):  # what is left is found the next time
            await end_strays(session)
    for finding in curable:
        if finding.kind != "stray_process":
            await _mend(finding, tell)


async def _mend(finding: Finding, tell: Callable[[Mended], None]) -> None:
    assert finding.remedy is not None
    try:
        await finding.remedy.apply()
    except (NotMended, MailboxError, OSError) as exc:
        tell(Mended(finding=finding, failure=str(exc)))
    else:
        tell(Mended(finding=finding))


def _in_session(session: Session, clock: Clock) -> Iterator[Finding]:
    is_alive = is_running(session)
    if not is_alive:
        yield from standing_findings(session)
        yield from worktree_findings(session)
    yield from log_findings(session, is_alive=is_alive)
    yield from mail_findings(session, clock, is_alive=is_alive)
    yield from approval_findings(session)
    yield from _in_tasks(session)


def _in_tasks(session: Session) -> Iterator[Finding]:
    files = TaskFiles(session.directory / TASKS)
    try:
        ids = list(files.ids())
    except TasksFailed as exc:
        yield damage(session, exc.path, exc.reason, advice="make it readable for yourself")
        return
    for task_id in ids:
        try:
            files.read(task_id)
        except TaskDamaged as exc:
            advice = f"mend it, or give it up: `coterie tasks update {task_id} --status deleted`"
            yield damage(session, exc.path, exc.reason, advice=advice)
        except UnknownTask:
            continue  # removed by hand


def _unreadable(name: str, exc: ConfigInvalid) -> Finding:
    directory = Path(exc.source).parent
    # Whoever was killed while it made a session has left a directory, and nothing that was ever recorded.
    is_empty = Path(exc.source).name == FILE and all(map(is_draft, directory.iterdir()))
    return Finding(
        kind="damaged_record",
        where=exc.source,
        what=exc.reason,
        session=name,
        remedy=Remedy(words="remove the empty directory", apply=partial(trio.to_thread.run_sync, directory.rmdir))
        if is_empty
        else None,
        advice=None if is_empty else "bring it back, or move the directory away",
    )
