"""The task list: claims, dependencies, and recovery from damage and disk errors."""

import contextlib
import itertools
import os
from pathlib import Path

import attrs
import filelock
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from coterie.clock import Clock
from coterie.files import file_faults
from coterie.mailbox.tasks.errors import (
    DependencyCycle,
    TaskBlocked,
    TaskDamaged,
    TaskDeleted,
    TaskDone,
    TaskInvalid,
    TaskListFull,
    TaskOwned,
    TasksBusy,
    TasksFailed,
    UnknownTask,
)
from coterie.mailbox.tasks.task import HISTORY_LIMIT, USER, Task, TaskChange, TaskId, TaskOwner
from coterie.mailbox.tasks.task_list import TaskList
from tests.examples import examples
from tests.seeded_faults import SeededFaults

LEAD = TaskOwner(name="main", incarnation=1)
ANN = TaskOwner(name="ann", incarnation=1)
BOB = TaskOwner(name="bob", incarnation=2)


@pytest.fixture
def tasks(tmp_path: Path) -> TaskList:
    return TaskList(tmp_path / "tasks", Clock())


async def made(tasks: TaskList, count: int) -> list[TaskId]:
    return [(await tasks.create(f"task {number}", by=LEAD)).id for number in range(1, count + 1)]


@pytest.fixture
async def task_id(tasks: TaskList) -> TaskId:
    """The only task of the list."""
    [task_id] = await made(tasks, 1)
    return task_id


async def add_dependency(tasks: TaskList, task_id: TaskId, on: TaskId) -> Task:
    return await tasks.update(task_id, LEAD, TaskChange(add_blocked_by=(on,)))


async def done(tasks: TaskList, task_id: TaskId, by: TaskOwner = ANN) -> Task:
    return await tasks.update(task_id, by, TaskChange(status="done"))


async def test_task_has_the_fields_it_was_created_with_in_a_private_file(tasks: TaskList) -> None:
    assert not (await tasks.list()).tasks
    assert not tasks.directory.exists()
    first = await tasks.create("first\n thing ", by=LEAD, description="do it\nwell")
    second = await tasks.create("second", by=ANN, blocked_by=[first.id, first.id])
    found = await tasks.list()
    assert [(task.id, task.subject, task.state) for task in found.tasks] == [
        (1, "first thing", "open"),
        (2, "second", "blocked"),
    ]
    assert found.tasks[0].description == "do it\nwell"
    assert found.tasks[0].blocks == (second.id,)
    assert found.tasks[1].blocked_by == found.tasks[1].waits_for == (first.id,)
    assert [(entry.by, entry.what) for entry in second.history] == [("ann#1", "created")]
    assert second.created == second.updated == second.history[0].at
    assert tasks.directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in tasks.directory.iterdir()} == {0o600}


@pytest.mark.parametrize(
    ("subject", "description", "field"),
    [(" \n", "", "subject"), ("x" * 301, "", "subject"), ("\ud800", "", "subject"), ("x", "x" * 65_537, "description")],
)
async def test_invalid_texts_are_refused(tasks: TaskList, subject: str, description: str, field: str) -> None:
    with pytest.raises(TaskInvalid) as caught:
        await tasks.create(subject, by=LEAD, description=description)
    assert caught.value.field == field
    assert (await tasks.list()).tasks == ()


async def test_task_is_owned_by_one_incarnation_until_reopened(tasks: TaskList, task_id: TaskId) -> None:
    await tasks.claim(task_id, ANN)
    later = attrs.evolve(ANN, incarnation=2)
    with pytest.raises(TaskOwned, match="task 1 is in progress; its owner is ann#1"):
        await tasks.claim(task_id, later)
    with pytest.raises(TaskOwned):
        await done(tasks, task_id, later)
    assert (await done(tasks, task_id)).owner == ANN
    with pytest.raises(TaskDone) as caught:
        await tasks.claim(task_id, BOB)
    assert caught.value.owner == ANN
    await tasks.update(task_id, BOB, TaskChange(status="open"))
    assert (await tasks.claim(task_id, BOB)).owner == BOB


async def test_blocked_task_is_claimed_after_its_dependencies_and_the_oldest_first(tasks: TaskList) -> None:
    first, second, third = await made(tasks, 3)
    await add_dependency(tasks, first, second)
    await add_dependency(tasks, first, third)
    claimed = [await tasks.claim_next(ANN), await tasks.claim_next(BOB), await tasks.claim_next(ANN)]
    assert [task and task.id for task in claimed] == [second, third, None]
    await done(tasks, second)
    with pytest.raises(TaskBlocked) as caught:
        await tasks.claim(first, ANN)
    assert caught.value.waits_for == (third,)
    with pytest.raises(TaskBlocked):
        await done(tasks, first)
    await done(tasks, third, BOB)
    task = await tasks.claim_next(BOB)
    assert (task and task.id, task and task.owner) == (first, BOB)


@pytest.mark.parametrize("status", ["open", "done", "deleted"])
async def test_running_task_is_ended_only_by_owner_lead_or_user(tasks: TaskList, status: str) -> None:
    change = TaskChange(status=status)  # type: ignore[arg-type]  # of the parameters above
    for by in (ANN, LEAD, USER):
        task = await tasks.create("x", by=LEAD)
        await tasks.claim(task.id, ANN)
        with pytest.raises(TaskOwned):
            await tasks.update(task.id, BOB, change)
        assert (await tasks.update(task.id, by, change)).status == status


async def test_release_all_includes_earlier_incarnations(tasks: TaskList) -> None:
    first, second, third, fourth, fifth = await made(tasks, 5)
    later = attrs.evolve(BOB, incarnation=3)
    await tasks.claim(first, attrs.evolve(BOB, incarnation=1))
    await tasks.claim(second, BOB)
    await tasks.claim(third, later)
    await tasks.claim(fourth, ANN)
    await done(tasks, fifth, BOB)
    released = await tasks.release_all(BOB)
    assert [task.id for task in released] == [first, second]
    assert [task.owner for task in (await tasks.list()).tasks] == [None, None, later, ANN, BOB]
    assert (await tasks.get(first)).history[-1].what == "released: its owner has ended"
    assert await tasks.release_all(BOB) == ()


async def test_change_is_made_whole_or_refused_whole(tasks: TaskList) -> None:
    first, second = await made(tasks, 2)
    await add_dependency(tasks, second, first)
    before = await tasks.get(second)
    with pytest.raises(TaskBlocked):
        await tasks.update(second, ANN, TaskChange(subject="other", status="done"))
    await tasks.update(second, ANN, TaskChange(subject="task 2", status="open", remove_blocked_by=(TaskId(7),)))
    assert await tasks.get(second) == before, "a change without effect is not recorded"
    change = TaskChange(remove_blocked_by=(first,), status="done", subject="other")
    task = await tasks.update(second, ANN, change)
    assert (task.status, task.blocked_by, task.subject) == ("done", (), "other")
    assert [entry.what for entry in task.history[-2:]] == ["subject changed; blocked by nothing", "done"]
    assert (await tasks.get(first)).blocks == ()


async def test_a_deleted_task_leaves_its_history_and_its_number(tasks: TaskList) -> None:
    first, second, third = await made(tasks, 3)
    await add_dependency(tasks, second, third)
    await tasks.delete(third, ANN)
    assert [task.id for task in (await tasks.list()).tasks] == [first, second]
    assert [entry.what for entry in (await tasks.get(third)).history] == ["created", "deleted"]
    assert (await tasks.create("next", by=LEAD)).id == 4
    assert (await tasks.claim(second, BOB)).owner == BOB
    for refused in (tasks.claim(third, BOB), tasks.delete(third, BOB), add_dependency(tasks, first, third)):
        with pytest.raises(TaskDeleted, match="task 3 was deleted by ann#1"):
            await refused


@pytest.mark.parametrize("number", [-1, 0, 3, 10**6, 10**400])
async def test_unknown_task_number_is_refused(tasks: TaskList, number: int) -> None:
    await made(tasks, 2)
    task_id = TaskId(number)
    for refused in (tasks.get(task_id), tasks.claim(task_id, ANN), add_dependency(tasks, TaskId(1), task_id)):
        with pytest.raises(UnknownTask, match="the highest number is 2"):
            await refused


async def test_tasks_are_filtered_by_state_and_owner(tasks: TaskList) -> None:
    first, second, third, fourth = await made(tasks, 4)
    await tasks.claim(first, ANN)
    await tasks.claim(second, BOB)
    await add_dependency(tasks, third, first)
    await tasks.delete(fourth, LEAD)

    async def ids(**filters: object) -> list[TaskId]:
        return [task.id for task in (await tasks.list(**filters)).tasks]  # type: ignore[arg-type]  # given below

    assert await ids() == [first, second, third]
    assert await ids(states=["blocked"]) == [third]
    assert await ids(states=["deleted"]) == [fourth]
    assert await ids(owner="bob") == [second]
    assert await ids(states=["blocked"], owner="bob") == []


async def test_a_history_keeps_its_beginning_and_its_newest_entries(tasks: TaskList, task_id: TaskId) -> None:
    task: Task = await tasks.get(task_id)
    for number in range(HISTORY_LIMIT + 10):
        task = task.with_change(0.0, ANN, str(number))
    assert len(task.history) == HISTORY_LIMIT
    assert (task.history[0].what, task.history[-1].what) == ("created", str(HISTORY_LIMIT + 9))


async def test_cached_task_is_read_again_after_a_change(tasks: TaskList, task_id: TaskId) -> None:
    path = tasks.directory / "000001.json"
    os.utime(path, (1, 1))
    assert (await tasks.get(task_id)).subject == "task 1"
    other = TaskList(tasks.directory, tasks.clock)
    await other.update(task_id, ANN, TaskChange(subject="task 2"))
    assert (await tasks.get(task_id)).subject == "task 2"
    path.write_bytes(b"{")
    with pytest.raises(TaskDamaged):
        await tasks.get(task_id)


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b'{"id": 2}', b"\xff", b"[" * 100_000, b"null"],
    ids=["empty", "torn", "incomplete", "no text", "deep", "null"],
)
async def test_damaged_file_is_reported_and_keeps_its_number_when_deleted(tasks: TaskList, damage: bytes) -> None:
    first, second, third, fourth = await made(tasks, 4)
    await add_dependency(tasks, third, second)
    path = tasks.directory / "000002.json"
    path.write_bytes(damage)
    found = await tasks.list()
    assert [task.id for task in found.tasks] == [first, third, fourth]
    assert [(damaged.id, damaged.path) for damaged in found.damaged] == [(second, path)]
    with pytest.raises(TaskDamaged, match=r"000002\.json: cannot be read as a task"):
        await tasks.claim(second, ANN)
    with pytest.raises(TaskBlocked):
        await tasks.claim(third, ANN)
    await tasks.delete(second, USER)
    assert (await tasks.list()).damaged == ()
    assert (await tasks.create("next", by=LEAD)).id == 5
    assert (await tasks.claim(third, ANN)).owner == ANN


async def test_other_files_are_ignored_and_wrong_numbers_and_versions_are_damage(tasks: TaskList) -> None:
    await made(tasks, 2)
    for name in (".coterie-1-0.draft", "notes.txt", "7.json", "000009.json.bak"):
        (tasks.directory / name).write_bytes(b"{")
    assert (await tasks.create("next", by=LEAD)).id == 3
    assert len((await tasks.list()).tasks) == 3
    first, second = (tasks.directory / f"00000{number}.json" for number in (1, 2))
    second.write_bytes(first.read_bytes())
    first.write_text(first.read_text().replace('"v": 1', '"v": 2'))
    assert [damaged.reason for damaged in (await tasks.list()).damaged] == [
        "the task has format version 2, but this program reads only version 1",
        "the file of task 2 contains task 1 instead",
    ]


async def test_task_numbers_are_limited(tasks: TaskList, task_id: TaskId) -> None:
    (tasks.directory / "000001.json").rename(tasks.directory / "999999.json")
    with pytest.raises(TaskListFull, match="999,999"):
        await tasks.create("x", by=LEAD)
    with pytest.raises(UnknownTask):
        await tasks.claim(task_id, ANN)


async def test_change_waits_for_the_lock_and_then_completes_even_if_cancelled(tasks: TaskList, task_id: TaskId) -> None:
    impatient = attrs.evolve(tasks, lock_timeout=0.01)
    async with trio.open_nursery() as nursery:
        with filelock.FileLock(tasks.directory / ".lock", thread_local=False):
            with pytest.raises(TasksBusy, match=r"held its lock for 0\.01 s"):
                await impatient.claim(task_id, ANN)
            assert len((await tasks.list()).tasks) == 1
            nursery.start_soon(tasks.claim, task_id, ANN)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert (await tasks.get(task_id)).owner == ANN


async def test_missing_session_directory_and_a_file_in_its_place_are_errors(tmp_path: Path) -> None:
    with pytest.raises(TasksFailed, match="No such file or directory"):
        await TaskList(tmp_path / "gone" / "tasks", Clock()).create("x", by=LEAD)
    assert not (tmp_path / "gone").exists()
    (tmp_path / "tasks").write_bytes(b"")
    tasks = TaskList(tmp_path / "tasks", Clock())
    with pytest.raises(TasksFailed):
        await tasks.create("x", by=LEAD)
    with pytest.raises(TasksFailed):
        await tasks.list()


@pytest.mark.parametrize("fault", ["full", "torn", "fsync", "rename"])
async def test_disk_error_leaves_tasks_unchanged(tasks: TaskList, fault: str) -> None:
    first, second = await made(tasks, 2)
    before = await tasks.list()
    for change in (
        tasks.create("x", by=LEAD, blocked_by=[first]),
        tasks.claim(first, ANN),
        tasks.claim_next(ANN),
        add_dependency(tasks, second, first),
        tasks.delete(first, ANN),
    ):
        faults = SeededFaults.from_mapping({"seed": 1, fault: 1.0})
        with file_faults(faults), pytest.raises(TasksFailed, match="was not written"):
            await change
        assert await tasks.list() == before
    assert len(list(tasks.directory.glob("*.json"))) == 2
    assert not list(tasks.directory.glob(".coterie*"))


def _reaches(edges: set[tuple[int, int]], start: int, end: int) -> bool:
    """Search by following every edge as often as there are tasks."""
    reached = {start}
    for _ in range(5):
        reached |= {on for waiting, on in edges if waiting in reached}
    return end in reached


@pytest.mark.slow
@examples(20)
@given(edges=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=14))
def test_no_sequence_of_dependencies_creates_a_cycle(
    tmp_path_factory: pytest.TempPathFactory, edges: list[tuple[int, int]]
) -> None:
    """A refused dependency would have closed a cycle of the accepted ones; in the end every task can be done."""

    async def play() -> None:
        tasks = TaskList(tmp_path_factory.mktemp("session") / "tasks", Clock(), is_durable=False)
        await made(tasks, 5)
        taken: set[tuple[int, int]] = set()
        for waiting, on in edges:
            closes = _reaches(taken, on, waiting)
            with pytest.raises(DependencyCycle) if closes else contextlib.nullcontext() as caught:
                await add_dependency(tasks, TaskId(waiting), TaskId(on))
            if caught is None:
                taken.add((waiting, on))
            else:
                path = caught.value.path
                assert path[0] == path[-1] == waiting
                assert set(itertools.pairwise(path)) <= taken | {(waiting, on)}
        for _ in range(5):
            task = await tasks.claim_next(ANN)
            assert task is not None
            await done(tasks, task.id)

    trio.run(play)
