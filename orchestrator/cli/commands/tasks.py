"""`coterie tasks`: shows and changes the task list of a session."""

import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

import attrs
import click
import trio

from coterie.clock import Clock
from coterie.mailbox.tasks.errors import TaskError, TaskRefused
from coterie.mailbox.tasks.task import USER, ListedTask, Task, TaskChange, TaskId, TaskState, TaskStatus
from coterie.mailbox.tasks.task_list import PRESENT, TaskList
from coterie.orchestrator.cli.completion_candidates import complete_recipient
from coterie.orchestrator.cli.output import (
    ExitCode,
    format_time,
    one_line,
    print_result,
    sanitize,
    translate_errors,
)
from coterie.orchestrator.cli.shared_options import find_session, json_option, session_option
from coterie.session_directory import TASKS

ActResult = TypeVar("ActResult")
Act = Callable[[], Coroutine[Any, Any, ActResult]]

_json = json_option("tasks")
_task_id = click.argument("task_id", metavar="NUMBER", type=int)
_description = click.option("--description", "-d", metavar="TEXT", help="Description of the task, in full.")


@click.group()
def tasks() -> None:
    """Show and change the task list of a session. Its agents share the list: they claim tasks and mark them as done."""


@tasks.command("list", short_help="List the tasks of a session.")
@session_option
@click.option(
    "--state",
    "states",
    type=click.Choice(get_args(TaskState)),
    multiple=True,
    help="List only tasks in this state; repeatable. blocked: another task must be done first; open: not blocked.",
)
@click.option(
    "--owner",
    metavar="NAME",
    shell_complete=complete_recipient,
    help="List only tasks that this agent works on or has done.",
)
@_json
def list_tasks(*, session: str | None, states: tuple[TaskState, ...], owner: str | None, is_json: bool) -> None:
    """List the tasks of a session with number, state, subject and owner (the agent that works on the task).

    Deleted tasks are listed only with --state deleted. Exits 1 if the file of a task cannot be read.
    """
    task_list = _open(session)
    found = _run(partial(task_list.list, states=states or PRESENT, owner=owner))
    print_result([attrs.asdict(task) for task in found.tasks], map(_line, found.tasks), is_json=is_json)
    for damage in found.damaged:
        click.echo(sanitize(str(damage)), err=True)
    sys.exit(ExitCode.FAILED if found.damaged else ExitCode.DONE)


@tasks.command(short_help="Show a task and its history.")
@_task_id
@session_option
@_json
def show(*, task_id: int, session: str | None, is_json: bool) -> None:
    """Show all fields of task NUMBER, also of a deleted one, and its history. Exits 1 if its file cannot be read."""
    task = _run(partial(_open(session).get, TaskId(task_id)))
    print_result(attrs.asdict(task), [_details(task)], is_json=is_json)


@tasks.command(short_help="Add a task to the task list of a session.")
@click.argument("subject")
@_description
@click.option(
    "--blocked-by", metavar="NUMBER", type=int, multiple=True, help="Task that must be done first; repeatable."
)
@session_option
@_json
def create(
    *, subject: str, description: str | None, blocked_by: tuple[int, ...], session: str | None, is_json: bool
) -> None:
    """Add a task with the title SUBJECT, which agents can claim, and print it. Exits 1 if it cannot be stored."""
    task_list = _open(session)
    blockers = tuple(map(TaskId, blocked_by))
    making = partial(task_list.create, subject, by=USER, description=description or "", blocked_by=blockers)
    _report(task_list, making, is_json=is_json)


@tasks.command()
@_task_id
@click.option("--subject", metavar="TEXT", help="New title, one line.")
@_description
@click.option(
    "--status",
    type=click.Choice(get_args(TaskStatus)),
    help="New status. open: its owner is removed; in_progress: you become the owner (refused if it is blocked, done "
    "or of an agent); done: refused if it is blocked; deleted: final, and its number is not used again.",
)
@click.option(
    "--blocked-by", metavar="NUMBER", type=int, multiple=True, help="Add a task that must be done first; repeatable."
)
@click.option(
    "--not-blocked-by",
    metavar="NUMBER",
    type=int,
    multiple=True,
    help="No longer require that this task is done first; repeatable.",
)
@session_option
@_json
def update(
    *,
    task_id: int,
    subject: str | None,
    description: str | None,
    status: TaskStatus | None,
    blocked_by: tuple[int, ...],
    not_blocked_by: tuple[int, ...],
    session: str | None,
    is_json: bool,
) -> None:
    """Change task NUMBER, and print it. Give at least one change; fields without an option stay as they are.

    `--status deleted`, as the only change, also works for a damaged task file. Exits 1 after a file error, 2 if
    refused.
    """
    change = TaskChange(
        subject=subject,
        description=description,
        status=status,
        add_blocked_by=tuple(map(TaskId, blocked_by)),
        remove_blocked_by=tuple(map(TaskId, not_blocked_by)),
    )
    if change == TaskChange():
        raise click.UsageError("nothing to change; give --status, --subject, --description or --[not-]blocked-by")
    task_list = _open(session)
    making = partial(task_list.update, TaskId(task_id), USER, change)
    if change == TaskChange(status="deleted"):
        making = partial(task_list.delete, TaskId(task_id), USER)
    _report(task_list, making, is_json=is_json)


def _open(session: str | None) -> TaskList:
    return TaskList(find_session(session).directory / TASKS, Clock.from_environment())


def _run(act: Act[ActResult]) -> ActResult:
    with translate_errors(user=(TaskRefused,), machine=(TaskError,), path=Path(TASKS)):
        return trio.run(act)


def _report(task_list: TaskList, act: Act[Task], *, is_json: bool) -> None:
    """Run *act*, which creates or changes a task of *task_list*, and print the task as text or JSON."""

    async def change() -> ListedTask:
        return await task_list.get((await act()).id)

    task = _run(change)
    print_result(attrs.asdict(task), [_line(task)], is_json=is_json)


def _line(task: ListedTask) -> str:
    note = ""
    if task.owner is not None:
        note = f" ({task.owner})"
    elif task.waits_for:
        note = f" (waits for {', '.join(map(str, task.waits_for))})"
    return f"{task.id:>4}  {task.state:<11}  {one_line(task.subject)}{sanitize(note)}"


def _details(task: ListedTask) -> str:
    facts = {
        "state": task.state,
        "owner": task.owner,
        "blocked by": ", ".join(map(str, task.blocked_by)),
        "blocks": ", ".join(map(str, task.blocks)),
    }
    lines = [f"task {task.id}: {task.subject}", *(f"{name}: {fact}" for name, fact in facts.items() if fact)]
    if task.description:
        lines += ["", task.description]
    lines += ["", *(f"{format_time(entry.at)}  {entry.by}  {entry.what}" for entry in task.history)]
    return sanitize("\n".join(lines))
