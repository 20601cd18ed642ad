"""The task list of a session: what there is to do, who does it, and what has to wait for what."""

from coterie.mailbox.tasks.board import Listing
from coterie.mailbox.tasks.task import USER, Change, Entry, ListedTask, Owner, State, Status, Task, TaskId
from coterie.mailbox.tasks.task_list import TaskList

__all__ = [
    "USER",
    "Change",
    "Entry",
    "ListedTask",
    "Listing",
    "Owner",
    "State",
    "Status",
    "Task",
    "TaskId",
    "TaskList",
]
