"""Check for worktrees that ended agents have left."""

from collections.abc import Iterator
from functools import partial

import trio

from coterie.agents.runtime.worktree import Worktree, find_unsaved_work
from coterie.git_command import GitFailed
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding, RepairAction, RepairFailed
from coterie.orchestrator.doctor.log_checks import damage_finding
from coterie.orchestrator.session.overview import is_running
from coterie.orchestrator.supervisor.worktree_lifecycle import WORKTREE_RECORD, read_worktree_record, remove_worktree
from coterie.session_directory import SessionDirectory

GIT_TIMEOUT = 30.0
"""Seconds that git may take to examine one worktree."""


def worktree_findings(session: SessionDirectory) -> Iterator[DoctorFinding]:
    """Find the remaining worktrees of *session*, which must not run. Runs git and blocks. Raises `OSError`."""
    for record in sorted(session.directory.glob(f"agents/*/{WORKTREE_RECORD}")):
        try:
            worktree = read_worktree_record(record)
        except OSError as exc:
            yield damage_finding(session, record, str(exc), advice="find the worktree with `git worktree list`")
            continue
        if worktree is not None:
            yield from _examine(session, worktree)


def _examine(session: SessionDirectory, worktree: Worktree) -> Iterator[DoctorFinding]:
    try:
        if not trio.run(_still_exists, worktree):
            return
        work = trio.run(_find_work, worktree)
    except GitFailed as exc:
        what, advice = f"its contents cannot be checked: {exc}", "check it, and delete it if it contains no work"
        yield DoctorFinding(
            kind="left_worktree", where=str(worktree.path), what=what, session=session.id, advice=advice
        )
        return
    if work is not None:
        what = f"worktree of an ended agent with its work on branch {worktree.branch}: {work}"
        yield DoctorFinding(
            kind="kept_worktree", where=str(worktree.path), what=what, session=session.id, is_harmless=True
        )
        return
    yield DoctorFinding(
        kind="left_worktree",
        where=str(worktree.path),
        what="worktree of an ended agent, without changes",
        session=session.id,
        remedy=RepairAction(description="remove it and its branch", apply=partial(_remove, session, worktree)),
    )


async def _still_exists(worktree: Worktree) -> bool:
    """Return True if the worktree or its branch still exists; the user may have deleted them or the repository."""
    if worktree.path.exists() or worktree.aside.exists():
        return True
    return worktree.repository.exists() and await worktree.tip() in (None, worktree.base)


async def _find_work(worktree: Worktree) -> str | None:
    try:
        with trio.fail_after(GIT_TIMEOUT):
            return await find_unsaved_work(worktree)
    except trio.TooSlowError as exc:
        raise GitFailed(f"git took longer than {GIT_TIMEOUT:.0f} seconds") from exc


async def _remove(session: SessionDirectory, worktree: Worktree) -> None:
    if is_running(session):
        raise RepairFailed(f"session {session.id} is running again")
    try:
        if await _find_work(worktree) is not None:
            raise RepairFailed("the worktree contains new work")
        await remove_worktree(worktree)
    except GitFailed as exc:
        raise RepairFailed(str(exc)) from exc
