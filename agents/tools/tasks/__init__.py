"""The tools with which an agent keeps to the task list of its session."""

from coterie.agents.tools.tasks.claim import TaskClaim
from coterie.agents.tools.tasks.create import TaskCreate
from coterie.agents.tools.tasks.listing import TaskList
from coterie.agents.tools.tasks.update import TaskUpdate
from coterie.agents.tools.tool import Tool
from coterie.mailbox import tasks

TASK_TOOLS = (TaskCreate.name, TaskList.name, TaskClaim.name, TaskUpdate.name)


def task_tools(task_list: tasks.TaskList, owner: tasks.Owner) -> tuple[Tool, ...]:
    """The tools of the agent that is *owner*, in the order of a request's tools."""
    return (
        TaskCreate(task_list, owner),
        TaskList(task_list, owner),
        TaskClaim(task_list, owner),
        TaskUpdate(task_list, owner),
    )
