"""Team files: keys, problems with their lines, and docs/teams.md; a team on disk, its spawn requests and briefing."""

import os
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest

from coterie.agents.definitions.definition_files import MAX_BYTES
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
from coterie.orchestrator.supervisor.child_agents import resolve_run
from coterie.orchestrator.teams.team_file import LEAD_KEYS, MEMBER_KEYS, TASK_KEYS, TEAM_KEYS, TeamInvalid, load_team
from coterie.orchestrator.teams.team_record import create_tasks, start_team_record
from coterie.session_directory import TASKS, SessionDirectory
from tests.orchestrator.cli.command_runner import coterie

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "teams.md").read_text()
DOCUMENTED_FLAWS = """# The flaws of the page.
name = "flawed"
coordinator = true

[[members]]
name = "scout"
type = "explorr"
model = "sonnet"

[[members]]
name = "Scout"
type = "worker"
prompt = "Go."
budget_usd = 0

[[tasks]]
id = "map"
subject = "Find all that the change touches"
owner = "scout"
blocked_by = ["build"]

[[tasks]]
id = "build"
subject = "Make the change"
blocked_by = ["map"]
"""

FLAWS: list[tuple[str | bytes, int, str]] = [
    ('a = 1\nnme = "x"', 2, "unknown key 'nme'; did you mean name?"),
    ('[[members]]\nname = "a"\n\nbugdet_usd = 1', 4, "unknown key 'bugdet_usd'; did you mean budget_usd?"),
    ('[lead]\ntype = "x"', 2, "unknown key 'type'; there is agent, model"),
    ('[[members]]\nname = "a"\ntype = "explorer"', 3, "unknown agent type 'explorer'; did you mean explore or worker?"),
    ('[lead]\nagent = "wrker"', 2, "unknown agent type 'wrker'; did you mean worker?"),
    ('[[members]]\nname = "a"\ntype = "fork"', 3, "cannot be a fork"),
    ('[[members]]\nname = "a"\nmodel = "sonet"', 3, "'sonet' is not a known model; did you mean sonnet"),
    ('[[members]]\nname = "a"\n[[members]]\nname = "A"', 4, "name 'A' is taken: another member is called a"),
    ('[[members]]\nname = "Main"', 2, "name 'Main' is taken: it is the name of the lead"),
    ('[[members]]\nname = "user"', 2, "name 'user' is taken: it is the name of the user"),
    ('[[members]]\nname = "dead"', 2, "name 'dead' is not valid: the names bridge, dead, held, outgoing are reserved"),
    ('[[members]]\nname = "a/b"', 2, "name 'a/b' is not valid: a name has A-Z, a-z, 0-9, - and _ only"),
    ('[[members]]\nname = "../x"', 2, "is not valid"),
    (f'[[members]]\nname = "{"x" * 65}"', 2, "a name has at most 64 characters, not 65"),
    ('[[members]]\nname = ""', 2, "name is ''; it should be a text in quotes"),
    ('\n[[members]]\ntype = "explore"', 2, 'name is missing: add a line such as `name = "scout"`'),
    ('[[members]]\nname = "a"\nbudget_usd = 0', 3, "budget_usd is 0; it should be a number above 0"),
    ('[[members]]\nname = "a"\nbudget_usd = nan', 3, "budget_usd is NaN; it should be"),
    ('[[members]]\nname = "a"\nmemory = "team"', 3, "it should be one of user, project, local"),
    ('[[members]]\nname = "a"\nplan_required = "boss"', 3, "plan_required is 'boss'; it should be true,"),
    ('[[members]]\nname = "a"\nplan_required = { paths = [] }', 3, "plan_required needs patterns"),
    ('[[members]]\nname = "a"\n[members.plan_required]\npaths = "x"', 4, "paths is 'x'; it should be a list"),
    ('[[members]]\nname = "a"\n[members.plan_required]\npaths = ["x"]\nby = "me"', 5, "unknown key 'by'"),
    ('coordinator = true\n[lead]\nagent = "worker"', 3, "cannot have another agent type"),
    ('lead = "opus"', 1, "lead is 'opus'; it should be a table"),
    ('[members]\nname = "a"', 1, "it should be a list of tables, each after a line [[members]]"),
    ('members = ["a"]', 1, "members.0 is 'a'; it should be a table"),
    ('[[tasks]]\nsubject = "s"', 1, 'id is missing: add a line such as `id = "find"`'),
    ('[[tasks]]\nid = "a"\nsubject = "s"\n[[tasks]]\nid = "a"\nsubject = "t"', 5, "another task has the id 'a'"),
    ('[[tasks]]\nid = "a"\nsubject = "s"\nowner = "scuot"', 4, "unknown member 'scuot'; there is main"),
    ('[[tasks]]\nid = "a"\nsubject = "s"\nblocked_by = ["b"]', 4, "unknown task 'b'; there is none"),
    (f'[[tasks]]\nid = "a"\nsubject = "{"s" * 301}"', 3, "subject has 301 characters, over 300"),
    (f'[[tasks]]\nid = "a"\nsubject = "s"\ndescription = "{"d" * 65_437}"', 4, "over 65,436"),
    ("", 1, "the file has no team; begin with [[members]]"),
    ("members:\n  - name: a\n", 1, "invalid TOML: expected"),
    (b'name = "x"\n\xff\xfe', 2, "not UTF-8: byte 0xff here; save the file as UTF-8"),
    (f"a = {'[' * 5_000}", 1, "nested too deeply"),
    (b"#" * (MAX_BYTES + 1), 1, f"{MAX_BYTES + 1:,} bytes, the limit is {MAX_BYTES:,}"),
]


@pytest.fixture(autouse=True)
def project(checkout: Path) -> Path:
    """A checkout with an agent type of its own."""
    (checkout / ".coterie/agents").mkdir(parents=True)
    (checkout / ".coterie/agents/reviewer.md").write_text("---\nname: reviewer\ndescription: d\n---\nGo.\n")
    return checkout


def read(project: Path, text: str | bytes) -> TeamDefinition:
    path = project / "team.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_team(path, project)


def problems_of(project: Path, text: str | bytes) -> list[tuple[int, str]]:
    with pytest.raises(TeamInvalid) as caught:
        read(project, text)
    assert {flaw.path for flaw in caught.value.flaws} == {project / "team.toml"}
    return [(flaw.line, flaw.reason) for flaw in caught.value.flaws]


def test_values_are_normalized_and_tasks_sorted_after_their_blockers(project: Path) -> None:
    text = """
[[members]]
name = "tester"
prompt = " Test it. "
plan_required = { paths = ["tests/**", "a.py"] }
process = "shared"
[[members]]
name = "writer"
type = "reviewer"
plan_required = true
budget_usd = 0.1
[[tasks]]
id = "last"
subject = "Prove   it"
owner = "main"
blocked_by = ["first", "first"]
[[tasks]]
id = "first"
subject = "Find it"
"""
    rule = PlanPolicy(by="rule", paths=("tests/**", "a.py"))
    members = (
        TeamMember(name="tester", type="general-purpose", prompt="Test it.", plan=rule, process="shared"),
        TeamMember(name="writer", type="reviewer", plan=PlanPolicy(), budget_usd=Decimal("0.1")),
    )
    first = TeamTask(key="first", subject="Find it")
    last = TeamTask(key="last", subject="Prove it", owner="main", blocked_by=("first",))
    assert read(project, text) == TeamDefinition(name="team", members=members, tasks=(first, last))


def test_default_name_is_that_of_the_file_and_a_byte_order_mark_is_accepted(project: Path) -> None:
    assert read(project, "coordinator = true") == TeamDefinition(name="team", coordinator=True)
    assert read(project, b'\xef\xbb\xbfname = "x"').name == "x"
    assert problems_of(project, b'\xef\xbb\xbfname = "x"\n# \xff')[0][0] == 2


@pytest.mark.parametrize(("text", "line", "reason"), FLAWS, ids=[reason for _, _, reason in FLAWS])
def test_problem_has_its_line_and_the_expected_value(project: Path, text: str | bytes, line: int, reason: str) -> None:
    found = problems_of(project, text)
    assert [where for where, why in found if reason in why] == [line], found


def test_each_cycle_of_tasks_is_reported(project: Path) -> None:
    """Two disjoint cycles are two problems; a task that only waits for a cycle is valid."""
    pairs = {"a": "b", "b": "a", "c": "d", "d": "c", "e": "a"}
    text = "".join(
        f'[[tasks]]\nid = "{key}"\nsubject = "s"\nblocked_by = ["{other}"]\n' for key, other in pairs.items()
    )
    assert [(line, why.split(": ")[1]) for line, why in problems_of(project, text)] == [
        (4, "a -> b -> a; remove one dependency"),
        (12, "c -> d -> c; remove one dependency"),
    ]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda _: None], ids=["directory", "pipe", "nothing"])
def test_non_file_is_not_opened(project: Path, make: object) -> None:
    path = project / "no.toml"
    assert callable(make)
    make(path)
    with pytest.raises(TeamInvalid) as caught:
        load_team(path, project)
    assert str(caught.value).startswith((f"{path}:1: not a regular file", f"{path}:1: cannot be read"))


def test_worktree_needs_a_repository(tmp_path: Path, project: Path) -> None:
    text = '[[members]]\nname = "a"\nworktree = true'
    assert read(project, text).members[0].worktree
    outside = tmp_path / "outside"
    outside.mkdir()
    assert problems_of(outside, text) == [
        (3, f"a worktree needs a git repository, and {outside} is not in one: run `git init`, or remove the key")
    ]


def test_team_above_the_concurrency_limit_is_refused(project: Path) -> None:
    (project / ".coterie" / "settings.toml").write_text("[agents]\nat_once = 3\n")
    text = "".join(f'[[members]]\nname = "m{number}"\n' for number in range(3))
    [(line, reason)] = problems_of(project, text)
    assert line == 5, "where the first stands who finds no room"
    assert "the lead and 3 members exceed the number of agents that may run at a time: agents.at_once is 3" in reason
    assert len(read(project, text[: text.rindex("[[")]).members) == 2


def keys_of(heading: str) -> set[str]:
    """Return the keys in the table whose first heading is *heading*."""
    table = PAGE.split(f"| {heading} | default | meaning |\n|---|---|---|\n")[1].split("\n\n")[0]
    return {key for row in table.splitlines() for key in re.findall(r"`([a-z_.]+)`", row.split(" | ")[0])}


def test_documented_keys_are_exactly_the_known_keys() -> None:
    lead = {f"lead.{key}" for key in LEAD_KEYS}
    assert keys_of("key") == (TEAM_KEYS.keys() - {"lead", "members", "tasks"}) | lead
    assert keys_of("key of `[[members]]`") == MEMBER_KEYS.keys()
    assert keys_of("key of `[[tasks]]`") == TASK_KEYS.keys()


def test_documented_problems_match_the_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("team.toml").write_text(DOCUMENTED_FLAWS)
    done = coterie("team", "check", "team.toml")
    assert done.exit_code == 2
    assert f"$ coterie team check team.toml\n{done.output}" in PAGE


TWO = TeamDefinition(
    name="two",
    members=(TeamMember(name="scout", type="explore", prompt="Look."), TeamMember(name="builder", type="worker")),
    tasks=(
        TeamTask(key="find", subject="Find it", owner="scout"),
        TeamTask(key="mend", subject="Mend it", owner="builder", blocked_by=("find",)),
        TeamTask(key="prove", subject="Prove it", description="With a test.", blocked_by=("find", "mend")),
    ),
)


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
