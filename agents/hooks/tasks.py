"""Hooks before a task of the list is done."""

from coterie.agents.hooks.hooks import Hooks
from coterie.mailbox.tasks import ListedTask


async def ask_before_completing(hooks: Hooks, agent: str, task: ListedTask) -> str | None:
    """Why *task* is not done yet, though *agent* says so; None if it is."""
    advice = await hooks.fire(
        "TaskCompleted",
        task_id=str(task.id),
        task_subject=task.subject,
        task_description=task.description,
        teammate_name=agent,
    )
    return "\n".join((*advice.objections, *(() if advice.stop is None else (advice.stop,)))) or None
