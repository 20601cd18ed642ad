"""Idle notices, assigned tasks, and tasks released by an agent that has ended."""

import contextlib
from pathlib import Path

import attrs
import pytest
import trio
import trio.testing

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.runtime.task_release import releasing_tasks
from coterie.clock import Clock
from coterie.mailbox.message_bodies import Idle, TaskAssignment
from coterie.mailbox.router import OutgoingMessage
from coterie.mailbox.tasks.task import Task, TaskChange, TaskId, TaskOwner
from coterie.mailbox.tasks.task_list import TaskList
from tests.agents.in_process_team import open_team

WORKER = TaskOwner(name="worker", incarnation=2)


async def test_lead_gets_an_idle_notice_with_the_reason_after_each_run(tmp_path: Path) -> None:
    async with open_team("worker: [{text: done}]", tmp_path) as team:
        team.roster.join("main")
        team.start("worker", None, lead="main")
        await team.until(lambda: team.transport.backlog("main").messages == 1)
        await team.router.send(team.sender("main"), OutgoingMessage(to="worker", body="Do it."))
        await team.until(lambda: team.transport.backlog("main").messages == 2)
        heard = await team.received("main")
        assert {envelope.kind for envelope in heard} == {"idle"}
        assert [Idle.from_body(envelope.body).outcome for envelope in heard] == [None, "completed"]
        assert [state for _, state in team.states] == ["idle", "running", "idle"]


async def test_idle_notice_starts_no_turn_of_the_lead(tmp_path: Path) -> None:
    async with open_team("{main: [{text: waiting}, {text: fine}], worker: [{text: done}]}", tmp_path) as team:
        team.start("main", "Lead.")
        await team.until(lambda: ("main", "idle") in team.states)
        team.start("worker", "Work.", lead="main")
        await team.until(lambda: ("worker", "idle") in team.states)
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert [e["agent"] for e in team.served.requests] == ["main", "worker"]
        await team.router.send(team.sender("user"), OutgoingMessage(to="main", body="And?"))
        await team.until_asked("main", 2)
        [text] = team.texts("main")[1:]
        assert 'kind="idle"' in text
        assert "And?" in text


@pytest.mark.parametrize(("subject", "line"), [("Mend <a>", "Task 7: Mend &lt;a&gt;"), ("", "Task 7")])
async def test_assigned_task_wakes_its_owner_and_shows_its_subject(tmp_path: Path, subject: str, line: str) -> None:
    async with open_team("worker: [{text: on it}]", tmp_path) as team:
        team.start("worker", None)
        body = TaskAssignment(task_id=7, subject=subject).to_body()
        await team.router.send(team.sender("main"), OutgoingMessage(to="worker", body=body, kind="task_assignment"))
        await team.until_asked("worker", 1)
        [text] = team.texts("worker")
        assert text.startswith('<message from="main" sender="lead" kind="task_assignment"')
        assert text.endswith(f">\n{line}\n</message>")


async def claimed(task_list: TaskList) -> TaskId:
    """Create a task that the worker has claimed."""
    task = await task_list.create("Mend it", by=WORKER)
    await task_list.claim(task.id, WORKER)
    return task.id


async def state_of(task_list: TaskList, task_id: TaskId) -> tuple[str, TaskOwner | None]:
    task: Task = await task_list.get(task_id)
    return task.status, task.owner


@pytest.mark.parametrize("end", ["returns", "fails", "is cancelled"])
async def test_tasks_are_released_when_their_owner_ends(tmp_path: Path, end: str) -> None:
    task_list = TaskList(tmp_path / "tasks", Clock())
    events: list[Event] = []
    task = await claimed(task_list)
    with trio.CancelScope() as scope, contextlib.suppress(ZeroDivisionError):
        async with releasing_tasks(task_list, WORKER, events.append):
            assert await state_of(task_list, task) == ("in_progress", WORKER)
            if end == "fails":
                raise ZeroDivisionError
            if end == "is cancelled":
                scope.cancel()
                await trio.sleep_forever()
    assert await state_of(task_list, task) == ("open", None)
    assert events == []


async def test_tasks_that_cannot_be_released_are_an_event(tmp_path: Path) -> None:
    task_list = TaskList(tmp_path / "tasks", Clock(), lock_timeout=0.01)
    task = await claimed(task_list)
    events: list[Event] = []
    with task_list._files.lock():  # noqa: SLF001 - as another process holds it
        async with releasing_tasks(task_list, WORKER, events.append):
            pass
    failures = [event for event in events if isinstance(event, LayerFailed)]
    assert len(failures) == len(events) == 2, "neither could what an earlier start had be taken over"
    assert {failure.layer for failure in failures} == {"tasks"}
    assert all("held its lock" in failure.reason for failure in failures)
    assert await state_of(task_list, task) == ("in_progress", WORKER)


async def test_next_incarnation_keeps_the_tasks_of_a_crashed_one(tmp_path: Path) -> None:
    task_list = TaskList(tmp_path / "tasks", Clock())
    task = await claimed(task_list)
    again = attrs.evolve(WORKER, incarnation=WORKER.incarnation + 1)
    async with releasing_tasks(task_list, again, lambda _: None):
        assert await state_of(task_list, task) == ("in_progress", again)
        await task_list.update(task, again, TaskChange(status="done"))
    assert await state_of(task_list, task) == ("done", again)
