"""Worktrees that agents have left: those without work in them are removed, the others are only mentioned."""

from collections.abc import Iterator
from functools import partial

import trio

from coterie.orchestrator.doctor.finding import Finding, NotMended, Remedy
from coterie.orchestrator.doctor.flaws import damage
from coterie.orchestrator.overview import is_running
from coterie.orchestrator.session import Session
from coterie.orchestrator.worktrees import RECORD, GitFailed, Worktree, find_work, read_record, remove_worktree

PATIENCE = 30.0
"""Seconds for a look into one worktree."""


def worktree_findings(session: Session) -> Iterator[Finding]:
    """The worktrees that are left of *session*, which does not run. Asks git, and waits for it. Raises `OSError`."""
    for record in sorted(session.directory.glob(f"agents/*/{RECORD}")):
        try:
            worktree = read_record(record)
        except OSError as exc:
            yield damage(session, record, str(exc), advice="look for the worktree with `git worktree list`")
            continue
        if worktree is not None:
            yield from _examine(session, worktree)


def _examine(session: Session, worktree: Worktree) -> Iterator[Finding]:
    try:
        if not trio.run(_is_left, worktree):
            return
        work = trio.run(_look, worktree)
    except GitFailed as exc:
        what, advice = f"what is in it cannot be told: {exc}", "look into it, and remove it if there is nothing"
        yield Finding(kind="left_worktree", where=str(worktree.path), what=what, session=session.id, advice=advice)
        return
    if work is not None:
        what = f"a worktree with the work of an agent, on the branch {worktree.branch}: {work}"
        yield Finding(kind="kept_worktree", where=str(worktree.path), what=what, session=session.id, is_harmless=True)
        return
    yield Finding(
        kind="left_worktree",
        where=str(worktree.path),
        what="a worktree of an agent that has ended, with nothing changed in it",
        session=session.id,
        remedy=Remedy(words="remove it, and its branch", apply=partial(_remove, session, worktree)),
    )


async def _is_left(worktree: Worktree) -> bool:
    """Whether anything of it is: the user may have removed it, and kept the branch or not even the repository."""
    if worktree.path.exists() or worktree.aside.exists():
        return True
    return worktree.repository.exists() and await worktree.tip() in (None, worktree.base)


async def _look(worktree: Worktree) -> str | None:
    try:
        with trio.fail_after(PATIENCE):
            return await find_work(worktree)
    except trio.TooSlowError as exc:
        raise GitFailed(f"git took more than {PATIENCE:.0f} seconds") from exc


async def _remove(session: Session, worktree: Worktree) -> None:
    if is_running(session):
        raise NotMended(f"session {session.id} runs again")
    try:
        if await _look(worktree) is not None:
            raise NotMended("there is work in it now")
        await remove_worktree(worktree)
    except GitFailed as exc:
        raise NotMended(str(exc)) from exc
