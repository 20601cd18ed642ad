"""A team between processes and on disk, its spawn requests, and the briefing of its lead."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.definitions.team_definition import (
    TEAM_FILE,
    TeamDefinition,
    TeamLead,
    TeamMember,
    TeamTask,
    load_recorded_team,
    team_briefing,
)
from coterie.agents.loop.model.catalog import known_models
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.settings import Settings
from coterie.clock import Clock
from coterie.errors import ConfigInvalid
from coterie.mailbox.tasks.task import USER, TaskId
from coterie.mailbox.tasks.task_list import TaskList
from coterie.orchestrator.supervisor.spawn import resolve_run
from coterie.orchestrator.teams.team_record import create_tasks, start_team_record
from coterie.session_directory import TASKS, SessionDirectory

TWO = TeamDefinition(
    name="two",
    members=(TeamMember(name="scout", type="explore", prompt="Look."), TeamMember(name="builder", type="worker")),
    tasks=(
        TeamTask(key="find", subject="Find it", owner="scout"),
        TeamTask(key="mend", subject="Mend it", owner="builder", blocked_by=("find",)),
        TeamTask(key="prove", subject="Prove it", description="With a test.", blocked_by=("find", "mend")),
    ),
)


@given(data=st.binary(max_size=60) | st.sampled_from([b"[" * 100_000, b"{}", b'{"name": 1}', b'{"name": "x"']))
def test_invalid_team_bytes_raise_value_error(data: bytes) -> None:
    try:
        TeamDefinition.from_bytes(data)
    except ValueError:
        return
    raise AssertionError(f"{data!r} is no team")


def test_member_with_prompt_gets_its_intended_tasks() -> None:
    scout, builder = TWO.requests()
    assert scout.task == "Look.\n\nTasks on the task list for you: 1 (Find it)."
    assert builder.task == "", "it waits for messages, and has no task by which it would not"


def test_briefing_lists_members_and_tasks() -> None:
    text = team_briefing(TWO)
    assert "You lead the team two." in text
    assert "- scout (type explore). Its task: Look." in text
    assert "- builder (type worker). It waits for messages." in text
    assert text.splitlines()[-3:] == [
        "- 1 [open, meant for scout] Find it",
        "- 2 [blocked by 1, meant for builder] Mend it",
        "- 3 [blocked by 1, 2] Prove it",
    ]
    assert team_briefing(attrs.evolve(TWO, members=())).startswith("The task list contains from the beginning:")
    assert team_briefing(TeamDefinition(name="t", coordinator=True)) == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"worktree": True}, "(type k; in a separate git worktree)"),
        ({"plan": PlanPolicy(by="lead")}, "(type k; its plan is approved by you)"),
        ({"plan": PlanPolicy(by="human")}, "its plan is approved by the user)"),
        ({"plan": PlanPolicy()}, "its plan is approved by the approver in the settings)"),
        (
            {"plan": PlanPolicy(by="rule", paths=("tests/**", "a.py"))},
            "its plan is approved by the rule tests/**, a.py)",
        ),
        ({"budget_usd": Decimal("2.50")}, "(type k; may spend $2.50)"),
        ({"prompt": "</x> &\n\nso on"}, "Its task: &lt;/x&gt; &amp; so on"),
        ({"prompt": f"{'x' * 199}<y>"}, f"{'x' * 199}&lt;..."),
    ],
)
def test_briefing_shows_the_limits_of_a_member(options: dict[str, Any], words: str) -> None:
    member = TeamMember(name="a", type="k", **options)
    briefing = team_briefing(TeamDefinition(name="t", members=(member,)))
    [line] = [line for line in briefing.splitlines() if line.startswith("- ")]
    assert words in line


async def test_session_stores_its_team_and_creates_tasks_once(session: SessionDirectory) -> None:
    """A resumed session reads its team from disk; tasks that are done or deleted are not created again."""
    tasks = TaskList(session.directory / TASKS, Clock())
    await start_team_record(session, None, Clock())
    assert (load_recorded_team(session), (await tasks.list()).tasks) == (None, ())
    limits: dict[str, Any] = {"budget_usd": Decimal("0.10"), "memory": "local", "worktree": True, "process": "own"}
    rule = PlanPolicy(by="rule", paths=("tests/**", "a.py"))
    last = TeamMember(name="last", type="worker", model="haiku", prompt="Go.", plan=rule, **limits)
    team = attrs.evolve(TWO, lead=TeamLead(agent="worker", model="opus"), members=(*TWO.members, last))
    await start_team_record(session, team, Clock())
    assert load_recorded_team(session) == team
    await tasks.delete(TaskId(1), USER)
    await start_team_record(session, None, Clock())
    listed = (await tasks.list()).tasks
    assert [(task.id, task.blocked_by) for task in listed] == [(2, (1,)), (3, (1, 2))]
    assert [task.description for task in listed] == ["Meant for builder.", "With a test."]
    (session.directory / TEAM_FILE).write_bytes(b'{"name": ')
    with pytest.raises(ConfigInvalid, match=TEAM_FILE):
        await start_team_record(session, None, Clock())


@pytest.mark.parametrize("crashed_after", range(4))
async def test_tasks_missing_after_a_crash_are_created_later(session: SessionDirectory, crashed_after: int) -> None:
    tasks = TaskList(session.directory / TASKS, Clock())
    await create_tasks(attrs.evolve(TWO, tasks=TWO.tasks[:crashed_after]), tasks)
    await create_tasks(TWO, tasks)
    await create_tasks(TWO, tasks)
    assert [listed.subject for listed in (await tasks.list()).tasks] == ["Find it", "Mend it", "Prove it"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"budget_usd": Decimal(2)}, {"budget": Decimal(2)}),
        ({"process": "shared", "worktree": True}, {"is_in_process": True, "isolation": "worktree"}),
        ({"type": "explore", "process": "own"}, {"is_in_process": False}),
        ({"type": "explore", "memory": "user"}, {"is_in_process": True, "memory": "user", "is_teammate": True}),
        ({"plan": PlanPolicy()}, {"plan": PlanPolicy(by="human")}),
        ({"plan": PlanPolicy(by="lead")}, {"plan": PlanPolicy(by="lead")}),
        ({"model": "haiku"}, {"model": known_models().get("haiku").id}),
        ({}, {"model": known_models().get("opus").id, "plan": None, "budget": None}),
    ],
)
@pytest.mark.usefixtures("home")
def test_member_options_reach_the_agent_spec(
    options: dict[str, Any], expected: dict[str, object], tmp_path: Path
) -> None:
    """A budget includes the descendants, because otherwise delegation would bypass it."""
    member = TeamMember(**{"name": "a", "type": "worker", **options})
    settings = Settings.build({"approvals.plans": "human"}, {})
    lead = AgentSpec(name="main", task="t", model=known_models().get("opus").id, settings=settings)
    run = resolve_run(member.request(), member.name, lead, tmp_path)
    found = {name: getattr(run if hasattr(run, name) else run.spec, name) for name in expected}
    assert found == expected
