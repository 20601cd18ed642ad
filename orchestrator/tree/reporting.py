"""What a parent is told of an agent that it started: once, by the agent itself, or for a dead one by the root."""

from collections.abc import Mapping
from typing import Literal

from coterie.agents.outcome import Ended, EndReason
from coterie.mailbox.envelope import Sender
from coterie.mailbox.ids import MessageId
from coterie.mailbox.lifecycle import TaskNotification
from coterie.mailbox.router import Draft, Router

Status = Literal["completed", "failed", "killed", "blocked"]

_OUTCOMES: Mapping[EndReason, tuple[Status, str]] = {
    "completed": ("completed", "The task is done."),
    "max_turns": ("blocked", "It has used up its turns."),
    "budget": ("blocked", "Its budget does not bear another call."),
    "prompt_too_long": ("blocked", "Its context is too long for the model."),
    "blocked": ("blocked", "Its context is too full for another turn."),
    "refused": ("failed", "The model refused to go on."),
    "cut_off": ("failed", "A reply did not fit, even at the largest size."),
    "model_error": ("failed", "The model could not be asked."),
    "cancelled": ("killed", "It was interrupted."),
    "hook": ("blocked", "A hook of the user's has ended it."),
    "shutdown": ("killed", "It was asked to end before the task was done."),
}


def notification(ended: Ended, reason_to_end: str = "") -> TaskNotification:
    """What to tell of a run that came to its end; *reason_to_end* was given by who asked for that."""
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


async def report_to(parent: str, report: TaskNotification, id_: MessageId, router: Router, sender: Sender) -> None:
    """Store *report* for *parent*; whoever else sends it with the same id, it arrives once. Raises `MailboxError`."""
    await router.send(sender, Draft(to=parent, body=report.to_body(), kind=report.kind, id=id_))
