"""Where an agent works: what its process is told of its place, and what is told of the place afterwards."""

from pathlib import Path

import attrs
import msgspec
import trio

from coterie.agents.prompt import render
from coterie.mailbox.lifecycle import TaskNotification
from coterie.orchestrator.session import Session
from coterie.orchestrator.starting import StartFailed
from coterie.orchestrator.tree.duty import Duty
from coterie.orchestrator.tree.ordering import Order
from coterie.orchestrator.worktrees import (
    GitFailed,
    WorktreeFailed,
    find_work,
    in_words,
    leave_worktree,
    open_worktree,
)

PATIENCE = 10.0
"""Seconds in which an agent looks through its worktree before it reports."""

_UNTOLD = "it was not looked through"


async def place(order: Order, session: Session) -> Order:
    """*order* with the place that it asks for; as it is where that is its parent's. Raises `StartFailed`.

    An agent that is started again has the worktree it had, or a new one if that was removed.
    """
    if order.isolation is None:
        return order
    if order.worktree is not None:
        origin = order.worktree.origin
    else:
        origin = session.project if order.directory is None else Path(order.directory)
    try:
        worktree = await open_worktree(session, order.name, origin)
    except WorktreeFailed as exc:
        raise StartFailed(str(exc)) from exc
    return attrs.evolve(order, worktree=worktree, directory=str(worktree.directory))


async def leave_place(order: Order, grace: float) -> str:
    """Remove the worktree of an agent that has ended, unless there is work in it; what became of it, in a sentence.

    Empty if it had none. Shielded, for *grace* seconds: what cannot be done by then is the doctor's to do.
    """
    left = "" if order.worktree is None else in_words(order.worktree, _UNTOLD)
    if order.worktree is not None:
        with trio.move_on_after(grace, shield=True):
            try:
                left = await leave_worktree(order.worktree)
            except OSError as exc:
                left = in_words(order.worktree, f"it could not be removed, {exc}")
    return left


def task_at(duty: Duty) -> str:
    """The task, as it is to be understood where the agent works: a fork knows another place."""
    worktree = duty.worktree
    if worktree is None or duty.fork is None or not duty.task:
        return duty.task
    moved = render("fork_worktree", directory=str(worktree.directory), origin=str(worktree.origin))
    return f"{moved}\n\n{duty.task}"


def first_words(task: str, words: str) -> str:
    """What a lead is told that was never told its session's *task*: a crash came before that; and now the *words*."""
    return words or task if words in ("", task) else f"{task}\n\n{words}"


async def report_at(duty: Duty, report: TaskNotification) -> TaskNotification:
    """*report*, with what there is in the agent's worktree."""
    if duty.worktree is None:
        return report
    work: str | None = _UNTOLD
    with trio.move_on_after(PATIENCE):
        try:
            work = await find_work(duty.worktree)
        except GitFailed as exc:
            work = str(exc)
    return msgspec.structs.replace(report, summary=f"{report.summary} {in_words(duty.worktree, work)}")
