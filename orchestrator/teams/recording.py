"""The team of a session on disk, and its first tasks on the task list."""

import trio

from coterie.agents.errors import ConfigInvalid
from coterie.clock import Clock
from coterie.files import replace_file
from coterie.mailbox.tasks import USER, TaskId, TaskList
from coterie.mailbox.tasks.task import State
from coterie.orchestrator.session import TASKS, Session
from coterie.orchestrator.teams.team import Team, TeamTask

FILE = "team.json"
"""In the directory of a session that was begun with a team."""
ALL: frozenset[State] = frozenset({"open", "blocked", "in_progress", "done", "deleted"})


def record_team(session: Session, team: Team) -> None:
    """Keep with what team *session* was begun. Blocks. Raises `OSError`."""
    replace_file(session.directory / FILE, team.to_bytes())


def recorded_team(session: Session) -> Team | None:
    """The team that *session* was begun with; None if with none. Blocks. Raises `ConfigInvalid`."""
    path = session.directory / FILE
    try:
        return Team.from_bytes(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as exc:
        raise ConfigInvalid(str(path), f"cannot be read: {exc}") from exc


async def begin_team(session: Session, team: Team | None, clock: Clock) -> None:
    """Keep the *team* that *session* begins with, if it does with one, and put its first tasks on the list.

    A session that is taken up again gets those of its tasks that a crash had left out. Raises `ConfigInvalid`,
    `TaskError` and `OSError`.
    """
    if team is not None:
        await trio.to_thread.run_sync(record_team, session, team)
    else:
        team = await trio.to_thread.run_sync(recorded_team, session)
    if team is not None:
        await create_tasks(team, TaskList(session.directory / TASKS, clock))


async def create_tasks(team: Team, tasks: TaskList) -> None:
    """Put the first tasks of *team* on its list; nothing happens to those that were put there before.

    Call it before anybody else can use the list: a task is known by its number. Raises `TaskError`.
    """
    found = await tasks.list(states=ALL)
    for task in team.tasks[len(found.tasks) + len(found.damaged) :]:
        blockers = [TaskId(team.numbers[key]) for key in task.blocked_by]
        await tasks.create(task.subject, by=USER, description=_description(task), blocked_by=blockers)


def _description(task: TeamTask) -> str:
    meant = f"Meant for {task.owner}." if task.owner else ""
    return "\n\n".join(filter(None, [task.description, meant]))
