"""Team of a session on disk, and its first tasks on the task list."""

import trio

from coterie.agents.definitions.team_definition import TEAM_FILE, TeamDefinition, TeamTask, load_recorded_team
from coterie.clock import Clock
from coterie.files import replace_file
from coterie.mailbox.tasks.task import USER, TaskId, TaskState
from coterie.mailbox.tasks.task_list import TaskList
from coterie.session_directory import TASKS, SessionDirectory

ALL_STATES: frozenset[TaskState] = frozenset({"open", "blocked", "in_progress", "done", "deleted"})


def save_team(session: SessionDirectory, team: TeamDefinition) -> None:
    """Keep with what team *session* was begun. Blocks. Raises `OSError`."""
    replace_file(session.directory / TEAM_FILE, team.to_bytes())


async def start_team_record(session: SessionDirectory, team: TeamDefinition | None, clock: Clock) -> None:
    """Keep the *team* that *session* begins with, if it does with one, and put its first tasks on the list.

    A session that is taken up again gets those of its tasks that a crash had left out. Raises `ConfigInvalid`,
    `TaskError` and `OSError`.
    """
    if team is not None:
        await trio.to_thread.run_sync(save_team, session, team)
    else:
        team = await trio.to_thread.run_sync(load_recorded_team, session)
    if team is not None:
        await create_tasks(team, TaskList(session.directory / TASKS, clock))


async def create_tasks(team: TeamDefinition, tasks: TaskList) -> None:
    """Put the first tasks of *team* on its list; nothing happens to those that were put there before.

    Call it before anybody else can use the list: a task is known by its number. Raises `TaskError`.
    """
    found = await tasks.list(states=ALL_STATES)
    for task in team.tasks[len(found.tasks) + len(found.damaged) :]:
        blockers = [TaskId(team.numbers[key]) for key in task.blocked_by]
        await tasks.create(task.subject, by=USER, description=_description(task), blocked_by=blockers)


def _description(task: TeamTask) -> str:
    meant = f"Meant for {task.owner}." if task.owner else ""
    return "\n\n".join(filter(None, [task.description, meant]))
