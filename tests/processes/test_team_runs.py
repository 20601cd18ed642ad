"""Teams from a file: real members that start with their lead, work, exchange messages, and are waited for."""

import json
import os
import signal
import subprocess
from pathlib import Path

import attrs
import pytest
import trio

from coterie.agents.definitions.team_definition import TeamDefinition, TeamMember
from coterie.agents.events.root_events import AgentChanged
from coterie.orchestrator.supervisor.agent_run import AgentRun, RestartPolicy
from coterie.orchestrator.teams.team_record import start_team_record
from coterie.session_directory import MAIN, TRANSCRIPT, SessionDirectory
from tests.processes.project_shell import BYPASS, ProjectShell
from tests.processes.root_harness import RootHarness, open_root_harness
from tests.processes.session_record import conversation

pytestmark = pytest.mark.slow

TEAM = """
name = "builders"

[[members]]
name = "scout"
type = "explore"
prompt = "Look around."

[[members]]
name = "builder"
type = "worker"
worktree = true
memory = "project"

[[members]]
name = "miser"
type = "worker"
prompt = "Spend."
budget_usd = 0.0001

[[tasks]]
id = "mend"
subject = "Mend it"
owner = "builder"
blocked_by = ["find"]

[[tasks]]
id = "find"
subject = "Find it"
owner = "scout"
"""
SCRIPT = """
main:
  - {text: "I wait."}
  - {text: "I heard {{last_user_text}}", times: always}
scout:
  - tools: [{TaskClaim: {task_id: 1}}, {Bash: {command: "touch by-scout"}}]
  - tools: [{TaskUpdate: {task_id: 1, status: done}}]
  - tools: [{SendMessage: {to: builder, message: "It is in a.txt, and {{tool_result.0}}"}}]
  - {text: "Nobody reads this."}
builder:
  - tools: [{TaskClaim: {task_id: 2}}, {Write: {file_path: built.txt, content: "by {{agent}}"}}]
  - tools: [{TaskUpdate: {task_id: 2, status: done}}, {Bash: {command: "pwd"}}]
  - tools: [{SendMessage: {to: main, message: "Built in {{tool_result.1}}."}}]
  - {text: "Nor this."}
miser:
  - {text: "I spent it."}
"""


@pytest.fixture
def checkout(project: Path) -> Path:
    """The project as a git repository with a commit, a team and a script."""
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for arguments in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "begun"]):
        subprocess.run([*git, *arguments], cwd=project, check=True)
    (project / "team.toml").write_text(TEAM)
    (project / "script.yaml").write_text(SCRIPT)
    return project


def texts_for(session: SessionDirectory, name: str) -> str:
    """Return all text that the agent *name* received, as JSON."""
    return "\n".join(
        segment.data.decode() for segment in conversation(session, name).segments if segment.role == "user"
    )


def test_the_team_of_a_file_starts_works_and_is_waited_for(checkout: Path) -> None:
    place = ProjectShell(checkout)
    options = ("--team", "team.toml", "--script", "script.yaml", *BYPASS, "--output-format", "json")
    done = place.coterie("run", "Have it mended.", *options)
    assert done.returncode == 0, done.stderr
    session, told = place.session, place.events(AgentChanged)
    pids = {event.name: event.pid for event in told if event.state == "running"}

    assert pids.keys() == {"main", "scout", "builder", "miser"}
    assert pids["scout"] == pids["main"], "its kind shares the process of who starts it"
    assert len(set(pids.values())) == 3

    ends = {event.name: event.state for event in told}
    assert set(ends.values()) == {"done"}, "members end well with their lead, whichever process they are in"

    tree = checkout / ".coterie" / "worktrees" / f"{session.id}-builder"
    assert (tree / "built.txt").read_text() == "by builder"
    assert not (checkout / "built.txt").exists()
    assert not (checkout / "by-scout").exists(), "who only reads can write to others, and no file"
    tasks = [json.loads(path.read_text()) for path in sorted((session.directory / "tasks").glob("*.json"))]
    assert [(task["subject"], task["status"], task["owner"]["name"]) for task in tasks] == [
        ("Find it", "done", "scout"),
        ("Mend it", "done", "builder"),
    ]

    lead = texts_for(session, "main")
    assert "You lead the team builders." in lead
    assert f"Built in {tree}." in lead
    assert 'agent=\\"miser\\"' in lead
    assert 'status=\\"blocked\\"' in lead, "its budget bears no call, and the lead is told"
    assert "Nobody reads this" not in lead
    builder = texts_for(session, "builder")
    assert "You are builder" in builder
    assert "Other members of the team: scout, miser." in builder
    memory = str(checkout / ".coterie" / "agent-memory" / "worker")
    transcripts = [(session.agent_directory(name) / TRANSCRIPT).read_text() for name in ("builder", "miser")]
    assert [memory in transcript for transcript in transcripts] == [True, False]
    assert str(session.directory / "scratch") in builder
    assert json.loads(done.stdout)["result"].startswith("I heard ")


CRASHING = """
main:
  - tools: [{Bash: {command: "echo ran >> ran.txt; until [ -e go ]; do sleep 0.05; done"}}]
  - {text: "I wait."}
  - {text: "I heard {{last_user_text}}", times: always}
near:
  - {text: "I look."}
default:
  - tools: [{Bash: {command: "echo {{agent}} >> begun.txt; until [ -e go ]; do sleep 0.05; done"}}]
  - tools: [{SendMessage: {to: main, message: "{{agent}} is done."}}]
  - {text: "I rest."}
"""
MEMBERS = TeamDefinition(
    name="three",
    members=(
        TeamMember(name="near", type="explore", prompt="Look."),
        TeamMember(name="left", type="worker", prompt="Go left."),
        TeamMember(name="right", type="worker", prompt="Go right."),
    ),
)


async def test_members_survive_a_crash_of_their_lead_and_reach_it_once(project: Path) -> None:
    """A member in the lead's process is restarted with it."""
    async with open_root_harness(project, CRASHING, grace=0.3) as tree, trio.open_nursery() as nursery:
        tree.supervisor.restarts = RestartPolicy(limit=2, first_wait=0.01)
        await start_team_record(tree.session, MEMBERS, tree.supervisor.services.clock)
        team = tuple(MEMBERS.requests())
        nursery.start_soon(
            tree.supervisor.run_agent, AgentRun(spec=attrs.evolve(tree.agent_spec(MAIN), parent=None), team=team)
        )
        for name in (MAIN, "left", "right"):
            await tree.until_shell_runs(name)
        os.kill(tree.pid(MAIN), signal.SIGKILL)
        await reached_again(tree, MAIN)
        (project / "go").touch()
        await tree.until_state(MAIN, "done")

        lead = texts_for(tree.session, MAIN)
        assert (project / "ran.txt").read_text() == "ran\n", "no call is run twice"
        assert sorted((project / "begun.txt").read_text().split()) == ["left", "right"]
        assert {e.incarnation for e in tree.events if e.name in ("left", "right")} == {1}
        assert [lead.count(f"{name} is done.") for name in ("left", "right")] == [1, 1]
        assert {e.pid for e in tree.events if e.name == "near" and e.incarnation == 2} >= {tree.pid(MAIN)}
        assert lead.count("task-notification") == 0, "nobody has ended"
        assert tree.supervisor.running == set(), "with the lead they all end"


async def reached_again(tree: RootHarness, name: str) -> None:
    """Wait until *name* runs as its second incarnation."""
    while not any(e.name == name and e.incarnation == 3 and e.state == "running" for e in tree.events):  # noqa: ASYNC110
        await trio.sleep(0.005)
