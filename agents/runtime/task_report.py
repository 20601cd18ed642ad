"""End of an agent: the report to its parent, and the release of its tasks."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Literal

import msgspec
import trio

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.loop.run_result import EndReason, RunEnded
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.runtime.worktree import WORK_NOT_CHECKED, describe_work, find_unsaved_work
from coterie.git_command import GitFailed
from coterie.mailbox.envelope import MessageId, Sender
from coterie.mailbox.message_bodies import TaskNotification
from coterie.mailbox.router import OutgoingMessage, Router
from coterie.mailbox.tasks.errors import TaskError
from coterie.mailbox.tasks.task import TaskOwner
from coterie.mailbox.tasks.task_list import TaskList

_OUTCOMES: Mapping[EndReason, tuple[Literal["completed", "failed", "killed", "blocked"], str]] = {
    "completed": ("completed", "The task is done."),
    "max_turns": ("blocked", "It has used up its turns."),
    "budget": ("blocked", "Its budget is too small for another call."),
    "prompt_too_long": ("blocked", "Its context is too long for the model."),
    "blocked": ("blocked", "Its context is too full for another turn."),
    "refused": ("failed", "The model refused to continue."),
    "cut_off": ("failed", "A reply did not fit, even at the largest size."),
    "model_error": ("failed", "A model call failed."),
    "cancelled": ("killed", "It was interrupted."),
    "hook": ("blocked", "A hook of the user has ended it."),
    "shutdown": ("killed", "It was asked to shut down before the task was done."),
}


def task_notification(ended: RunEnded, reason_to_end: str = "") -> TaskNotification:
    """Return the report of a run that has ended; *reason_to_end* is the reason given in a shutdown request."""
    status, summary = _OUTCOMES[ended.reason]
    if status == "killed" and reason_to_end:
        summary = f"{summary.removesuffix('.')}: {reason_to_end}."
    return TaskNotification(
        status=status,
        summary=summary if ended.error is None else f"{summary} {ended.error}",
        result=ended.text,
        turns=ended.turns,
        tool_calls=ended.tool_calls,
        cost_usd=format(ended.cost, "f"),
    )


async def send_report(parent: str, report: TaskNotification, id_: MessageId, router: Router, sender: Sender) -> None:
    """Store *report* in the mailbox of *parent*; reports with the same *id_* arrive once. Raises `MailboxError`."""
    await router.send(sender, OutgoingMessage(to=parent, body=report.to_body(), kind=report.kind, id=id_))


WORKTREE_CHECK_TIMEOUT = 10.0
"""Seconds for the check of the worktree before an agent reports."""


async def add_worktree_state(spec: AgentSpec, report: TaskNotification) -> TaskNotification:
    """Return *report* with the state of the agent's worktree added to the summary."""
    if spec.workspace.worktree is None:
        return report
    work: str | None = WORK_NOT_CHECKED
    with trio.move_on_after(WORKTREE_CHECK_TIMEOUT):
        try:
            work = await find_unsaved_work(spec.workspace.worktree)
        except GitFailed as exc:
            work = str(exc)
    return msgspec.structs.replace(report, summary=f"{report.summary} {describe_work(spec.workspace.worktree, work)}")


RELEASE_TIMEOUT = 15.0
"""Seconds for releasing tasks; a little more than the timeout of the task list's lock."""


@asynccontextmanager
async def releasing_tasks(task_list: TaskList, owner: TaskOwner, emit: Callable[[Event], None]) -> AsyncIterator[None]:
    """Release the tasks of *owner* when the block ends, also after an error or cancellation.

    At the beginning, *owner* takes over the tasks of an earlier incarnation that crashed. A task that cannot be taken
    over or released is an event; a task that cannot be released stays claimed until the next incarnation ends.
    """
    try:
        if owner.incarnation > 1:
            with _reporting_errors(emit):
                await task_list.take_over(owner)
        yield
    finally:
        await release_tasks(task_list, owner, emit)


async def release_tasks(task_list: TaskList, owner: TaskOwner, emit: Callable[[Event], None]) -> None:
    """Release the tasks of *owner*, an agent that has ended, even if cancelled. A failure is an event."""
    with trio.move_on_after(RELEASE_TIMEOUT, shield=True), _reporting_errors(emit):
        await task_list.release_all(owner)


@contextmanager
def _reporting_errors(emit: Callable[[Event], None]) -> Iterator[None]:
    try:
        yield
    except TaskError as exc:
        emit(LayerFailed(layer="tasks", reason=str(exc)))
