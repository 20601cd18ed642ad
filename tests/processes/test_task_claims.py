"""Several processes on one task list with dependencies, and processes that are killed."""

import itertools
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from coterie.clock import Clock
from coterie.mailbox.tasks.task import ListedTask, TaskChange, TaskOwner
from coterie.mailbox.tasks.task_list import TaskList

pytestmark = pytest.mark.slow

LEAD = TaskOwner(name="main", incarnation=1)
LONGEST = 60
"""Seconds until a test considers a process stuck."""
SETTLED = {"created": {"claimed"}, "claimed": {"done", "released"}, "released": {"claimed"}, "done": set()}
"""Allowed successions in a history; a claimed task cannot be claimed."""

WORKER = """
import sys, trio
from pathlib import Path
from coterie.clock import Clock
from coterie.mailbox.tasks.task import TaskChange, TaskOwner
from coterie.mailbox.tasks.task_list import TaskList

async def work(directory, name):
    tasks, owner = TaskList(Path(directory), Clock(), is_durable=False), TaskOwner(name=name, incarnation=1)
    while True:
        task = await tasks.claim_next(owner)
        if task is not None:
            print(task.id, flush=True)
            await tasks.update(task.id, owner, TaskChange(status="done"))
        elif not (await tasks.list(states=["open", "blocked", "in_progress"])).tasks:
            return
        else:
            await trio.sleep(0.02)

trio.run(work, *sys.argv[1:])
"""
"""Works on tasks until all are done, and prints the number of each; tasks of others may unblock more."""

CREATOR = """
import itertools, sys, trio
from pathlib import Path
from coterie.clock import Clock
from coterie.mailbox.tasks.task import TaskOwner
from coterie.mailbox.tasks.task_list import TaskList

async def create(directory, name):
    tasks, owner = TaskList(Path(directory), Clock()), TaskOwner(name=name, incarnation=1)
    for number in itertools.count():
        task = await tasks.create(f"{name} {number}", by=owner)
        print(task.id, flush=True)
        if number % 3 == 0:
            await tasks.delete(task.id, owner)

trio.run(create, *sys.argv[1:])
"""
"""Creates tasks until it is killed, prints the number of each, and deletes some."""


@contextmanager
def running(script: str, directory: Path, count: int, *, first: int = 0) -> Iterator[list[subprocess.Popen[str]]]:
    """Start processes w0, w1 ... (or from *first*) that run *script*; all are ended with the block."""
    command = [sys.executable, "-P", "-c", script, str(directory)]
    processes = [
        subprocess.Popen([*command, f"w{number}"], stdout=subprocess.PIPE, text=True)
        for number in range(first, first + count)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            with process:
                pass


def course(task: ListedTask) -> list[str]:
    """Return the changes of a task in order, without its dependencies."""
    words = (entry.what.partition(":")[0] for entry in task.history)
    return [word for word in words if word in SETTLED]


def check_history(tasks: Sequence[ListedTask]) -> None:
    by_id = {task.id: task for task in tasks}
    finished = {task.id: task.history[-1].at for task in tasks}
    for task in tasks:
        assert task.status == "done"
        assert all(then in SETTLED[word] for word, then in itertools.pairwise(course(task))), task.history
        claims = [entry.at for entry in task.history if entry.what == "claimed"]
        for on in task.blocked_by:
            assert task.id in by_id[on].blocks
            assert finished[on] <= min(claims), f"task {task.id} was claimed before task {on} was done"


async def test_tasks_of_a_killed_process_are_done_by_others(tmp_path: Path) -> None:
    tasks = TaskList(tmp_path / "tasks", Clock(), is_durable=False)
    ids = [(await tasks.create(f"task {number}", by=LEAD)).id for number in range(60)]
    dice = random.Random(5)
    for waiting, on in (sorted(dice.sample(ids, 2)) for _ in range(40)):
        await tasks.update(on, LEAD, TaskChange(add_blocked_by=(waiting,)))
    # It has claimed a task before the others begin, which might otherwise leave none.
    with running(WORKER, tasks.directory, 1) as [victim]:
        assert victim.stdout is not None
        assert victim.stdout.readline()
        with running(WORKER, tasks.directory, 3, first=1) as others:
            victim.kill()
            victim.wait()
            await tasks.release_all(TaskOwner(name="w0", incarnation=1))
            outputs = [worker.communicate(timeout=LONGEST)[0].split() for worker in others]
            assert [worker.returncode for worker in others] == [0, 0, 0]
    found = await tasks.list()
    assert len(found.tasks) == 60
    assert max(Counter(itertools.chain(*outputs)).values()) == 1
    check_history(found.tasks)


async def test_killed_processes_leave_a_readable_task_list_and_increasing_numbers(tmp_path: Path) -> None:
    tasks = TaskList(tmp_path / "tasks", Clock())
    promised: list[int] = []
    for round_number in range(3):
        with running(CREATOR, tasks.directory, 3) as creators:
            for creator in creators:
                assert creator.stdout is not None
                promised += [int(creator.stdout.readline()) for _ in range(4 + round_number)]
            for creator in creators:
                creator.kill()
            promised += [int(word) for creator in creators for word in creator.communicate()[0].splitlines() if word]
        found = await tasks.list(states=["open", "deleted"])
        assert not found.damaged
        assert {task.id for task in found.tasks} >= set(promised), "what was printed is there"
        assert (await tasks.create("after", by=LEAD)).id == max(task.id for task in found.tasks) + 1
    assert len(set(promised)) == len(promised)
