"""End of an agent: the report to its parent agent, and the release of the tasks that it had claimed."""

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
    """Return the report on the run *ended* for the agent's parent; *reason_to_end*: reason of a shutdown request."""
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
    """Store *report* in the mailbox of agent *parent*, which gets only one report per *id_*. Raises `MailboxError`."""
    await router.send(sender, OutgoingMessage(to=parent, body=report.to_body(), kind=report.kind, id=id_))


WORKTREE_CHECK_TIMEOUT = 10.0
"""Maximum seconds for the search for unsaved work in an agent's git worktree, before the agent reports."""


async def add_worktree_state(spec: AgentSpec, report: TaskNotification) -> TaskNotification:
    """Return *report* with a sentence about unsaved work in the agent's git worktree, if it has one, in the summary."""
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
"""Maximum seconds for the release of an agent's tasks; slightly more than the timeout of the task list's lock."""


@asynccontextmanager
async def releasing_tasks(task_list: TaskList, owner: TaskOwner, emit: Callable[[Event], None]) -> AsyncIterator[None]:
    """At the end of the block, also after an error or cancellation, release the tasks that agent *owner* has claimed.

    At the start, *owner* takes over tasks that its earlier, crashed process had claimed. If either fails, an event
    is emitted; a task that cannot be released stays claimed until the agent's next process ends.
    """
    try:
        if owner.incarnation > 1:
            with _reporting_errors(emit):
                await task_list.take_over(owner)
        yield
    finally:
        await release_tasks(task_list, owner, emit)


async def release_tasks(task_list: TaskList, owner: TaskOwner, emit: Callable[[Event], None]) -> None:
    """Release the tasks of *owner*, an agent that has ended, even if this call is cancelled. A failure is an event."""
    with trio.move_on_after(RELEASE_TIMEOUT, shield=True), _reporting_errors(emit):
        await task_list.release_all(owner)


@contextmanager
def _reporting_errors(emit: Callable[[Event], None]) -> Iterator[None]:
    try:
        yield
    except TaskError as exc:
        emit(LayerFailed(layer="tasks", reason=str(exc)))
