"""`coterie run` with definitions that set effort, colour and initial prompt."""

from pathlib import Path

import pytest

from coterie.agents.events.agent_events import RunStarted
from coterie.agents.loop.conversation.transcript import LoadedTranscript, load_transcript
from coterie.memory.compaction.summary_text import block_text
from coterie.orchestrator.events.session_reader import read_session
from tests.processes.project_shell import ProjectShell

pytestmark = pytest.mark.slow

PLANNER = """---
name: planner
description: Plans the work.
initialPrompt: /next Say what comes next.
effort: low
color: purple
---
You plan.
"""
OLD = """---
name: old
description: Works with an old model.
model: haiku-4-5
effort: max
---
You work.
"""
NEXT = "---\nname: next\ndescription: Finds what comes next.\n---\nRead ROADMAP.md.\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Path) -> ProjectShell:
    """A repository with two agent types and a skill."""
    del runtime
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    for directory in (".git", ".claude/agents", ".claude/skills/next"):
        (project / directory).mkdir(parents=True)
    (project / ".claude/agents/planner.md").write_text(PLANNER)
    (project / ".claude/agents/old.md").write_text(OLD.replace("haiku-4-5", "claude-haiku-4-5"))
    (project / ".claude/skills/next/SKILL.md").write_text(NEXT)
    return ProjectShell(project)


def loaded(place: ProjectShell, agent: str = "main") -> LoadedTranscript:
    return load_transcript(place.session.directory / "agents" / agent / "transcript.jsonl")


def first_blocks(place: ProjectShell) -> list[str]:
    conversation = loaded(place).conversation
    assert conversation is not None
    return [block_text(block) for block in conversation.messages[0].blocks]


def effort(place: ProjectShell, agent: str = "main") -> str | None:
    conversation = loaded(place, agent).conversation
    assert conversation is not None
    return conversation.header.effort


def test_lead_without_a_task_starts_with_its_initial_prompt(place: ProjectShell) -> None:
    done = place.coterie("run", "-p", "--agent", "planner", "-", *place.model("main: [Done.]"))
    assert done.returncode == 0, done.stderr
    *_, skill, words = first_blocks(place)
    assert "Read ROADMAP.md." in skill
    assert words == "/next Say what comes next."
    assert loaded(place).words == (words,)


@pytest.mark.soak
def test_initial_prompt_precedes_the_task(place: ProjectShell) -> None:
    script = """
main:
  - tools: [{Agent: {description: help, prompt: "Help.", name: helper, subagent_type: planner}}]
  - text: Done.
helper: [Helped.]
"""
    done = place.coterie("run", "-p", "--agent", "planner", "Only the first step.", *place.model(script))
    assert done.returncode == 0, done.stderr
    assert first_blocks(place)[-2:] == ["/next Say what comes next.", "Only the first step."]
    helper = loaded(place, "helper")
    assert helper.words == ("Help.",)
    assert (effort(place), effort(place, "helper")) == ("low", "low")
    started = [each.event for each in read_session(place.session.directory) if isinstance(each.event, RunStarted)]
    assert [event.color for event in started] == ["#a855f7", "#a855f7"]


def test_effort_is_not_sent_to_a_model_without_it(place: ProjectShell) -> None:
    """The embedded server would reject it, like the API."""
    done = place.coterie("run", "-p", "--agent", "old", "Go.", *place.model("main: [Done.]"))
    assert done.returncode == 0, done.stderr
    assert effort(place) is None
    checked = place.coterie("agents", "check")
    assert "effort has no effect: claude-haiku-4-5 does not support it" in checked.stdout


def test_run_without_task_and_initial_prompt_is_refused(place: ProjectShell) -> None:
    done = place.coterie("run", "-p", "--agent", "old", "-", *place.model("main: [Done.]"))
    assert done.returncode == 2
    assert "no task" in done.stderr
