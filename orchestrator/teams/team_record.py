"""Record of a session's team on disk, and the initial tasks of the team on the shared task list."""

from typing import get_args

import trio

from coterie.agents.definitions.team_definition import TEAM_FILE, TeamDefinition, load_recorded_team
from coterie.clock import Clock
from coterie.files import replace_file
from coterie.mailbox.tasks.task import USER, TaskId, TaskState
from coterie.mailbox.tasks.task_list import TaskList
from coterie.session_directory import TASKS, SessionDirectory


async def start_team_record(session: SessionDirectory, team: TeamDefinition | None, clock: Clock) -> None:
    """Write *team* to the directory of the new *session*, and add the initial tasks of the team to the task list.

    If *team* is None, the recorded team of the session, if any, gets the initial tasks that a crash prevented. Raises
    `ConfigInvalid`, `TaskError` and `OSError`.
    """
    if team is not None:
        await trio.to_thread.run_sync(replace_file, session.directory / TEAM_FILE, team.to_bytes())
    else:
        team = await trio.to_thread.run_sync(load_recorded_team, session)
    if team is not None:
        await create_tasks(team, TaskList(session.directory / TASKS, clock))


async def create_tasks(team: TeamDefinition, tasks: TaskList) -> None:
    """Add the initial tasks of *team* to the task list *tasks*; skip as many of the first ones as the list has tasks.

    Call this before other processes add tasks, because it only counts the tasks on the list. Raises `TaskError`.
    """
    found = await tasks.list(states=frozenset(get_args(TaskState)))
    for task in team.tasks[len(found.tasks) + len(found.damaged) :]:
        blockers = [TaskId(team.numbers[key]) for key in task.blocked_by]
        meant = f"Meant for {task.owner}." if task.owner else ""
        description = "\n\n".join(filter(None, [task.description, meant]))
        await tasks.create(task.subject, by=USER, description=description, blocked_by=blockers)
