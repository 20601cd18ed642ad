"""Checks of sessions that are not running: records that say that they run, and worktrees that agents left behind."""

from collections.abc import Iterator
from functools import partial

import trio

from coterie.agents.events.event_reader import read_log_backwards
from coterie.agents.events.root_events import CleanedUp
from coterie.agents.runtime.worktree import Worktree, find_unsaved_work
from coterie.errors import ConfigInvalid
from coterie.git_command import GitFailed
from coterie.mailbox.roster import FileRoster
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding, RepairAction, RepairFailed
from coterie.orchestrator.doctor.log_checks import damage_finding
from coterie.orchestrator.session.overview import is_running, read_members
from coterie.orchestrator.session.root_lock import ROOT_RECORD, clear_stale_root, has_dead_root, hold_root_lock
from coterie.orchestrator.supervisor.worktree_lifecycle import WORKTREE_RECORD, read_worktree_record, remove_worktree
from coterie.session_directory import EVENT_LOG, ROSTER_FILE, SessionDirectory

GIT_TIMEOUT = 30.0
"""Seconds that git may take to examine one worktree."""


def stale_session_findings(session: SessionDirectory) -> Iterator[DoctorFinding]:
    """Find records of *session*, which must not be running, that say that it or its agents run. Raises `OSError`."""
    names = _recorded_as_alive(session)
    if names or has_dead_root(session):
        recorded = f"agents are running ({', '.join(names)})" if names else f"the root in {ROOT_RECORD} is running"
        cause = f"; {_cleanup_failure(session)}" if has_dead_root(session) else ""
        yield DoctorFinding(
            kind="interrupted_session",
            where=str(session.directory),
            what=f"the session's records say that {recorded}, but no such process exists{cause}",
            session=session.id,
            remedy=RepairAction(description="mark all its agents as ended", apply=partial(mark_ended, session)),
        )


async def mark_ended(session: SessionDirectory) -> None:
    """Correct the records of *session*: mark all agents as ended, remove the record of a killed root (supervisor).

    Holds the root lock, so no new root can start in the meantime, whose agents would be marked as ended too.
    Raises `RepairFailed` if the session runs, `MailboxError` and `OSError`.
    """
    await trio.to_thread.run_sync(_mark_ended_sync, session)


def _mark_ended_sync(session: SessionDirectory) -> None:
    try:
        with hold_root_lock(session):
            if is_running(session):
                raise RepairFailed(f"session {session.id} is running again, so nothing was repaired; stop it first")
            if names := _recorded_as_alive(session):
                FileRoster(session.directory / ROSTER_FILE).mark_ended_sync(names)
            clear_stale_root(session)
    except ConfigInvalid as exc:
        raise RepairFailed(str(exc)) from exc


def _recorded_as_alive(session: SessionDirectory) -> list[str]:
    return [member.name for member in read_members(session).values() if member.state != "ended"]


def _cleanup_failure(session: SessionDirectory) -> str:
    """Return the reason why the cleanup daemon did not repair *session* after the root (supervisor) was killed."""
    last = next(read_log_backwards(session.directory / EVENT_LOG), None)
    if last is None or not isinstance(last.event, CleanedUp):
        return "its cleanup daemon was killed too, or has not finished"
    return f"its cleanup daemon could not repair it: {'; '.join(last.event.failures) or 'it ran too late'}"


def worktree_findings(session: SessionDirectory) -> Iterator[DoctorFinding]:
    """Find the git worktrees that agents of *session*, which must have ended, left behind. Blocks. Raises `OSError`."""
    for record in sorted(session.directory.glob(f"agents/*/{WORKTREE_RECORD}")):
        try:
            worktree = read_worktree_record(record)
        except OSError as exc:
            yield damage_finding(session, record, str(exc), advice="find the worktree with `git worktree list`")
            continue
        if worktree is not None:
            yield from _examine(session, worktree)


def _examine(session: SessionDirectory, worktree: Worktree) -> Iterator[DoctorFinding]:
    found = partial(DoctorFinding, where=str(worktree.path), session=session.id)
    try:
        if not trio.run(_still_exists, worktree):
            return
        work = trio.run(_find_work, worktree)
    except GitFailed as exc:
        what, advice = f"its contents cannot be checked: {exc}", "check it, and delete it if it contains no work"
        yield found(kind="left_worktree", what=what, advice=advice)
        return
    if work is None:
        remedy = RepairAction(description="remove it and its branch", apply=partial(_remove, session, worktree))
        yield found(kind="left_worktree", what="worktree of an ended agent, without changes", remedy=remedy)
    else:
        what = f"worktree of an ended agent with its work on branch {worktree.branch}: {work}"
        yield found(kind="kept_worktree", what=what, is_harmless=True)


async def _still_exists(worktree: Worktree) -> bool:
    """Return True unless the user deleted the worktree, and its branch has new commits or its repository is gone."""
    if worktree.path.exists() or worktree.aside.exists():
        return True
    return worktree.repository.exists() and await worktree.tip() in (None, worktree.base)


async def _find_work(worktree: Worktree) -> str | None:
    try:
        with trio.fail_after(GIT_TIMEOUT):
            return await find_unsaved_work(worktree)
    except trio.TooSlowError as exc:
        raise GitFailed(f"git looked for changes in {worktree.path} for over {GIT_TIMEOUT:.0f} s; try again") from exc


async def _remove(session: SessionDirectory, worktree: Worktree) -> None:
    if is_running(session):
        raise RepairFailed(f"session {session.id} is running again, so nothing was repaired; stop it first")
    try:
        if await _find_work(worktree) is not None:
            raise RepairFailed("the worktree was not removed, because it contains new work; save the work first")
        await remove_worktree(worktree)
    except GitFailed as exc:
        raise RepairFailed(str(exc)) from exc
