"""`coterie run` with definitions that set effort, colour and initial prompt."""

import pytest

from coterie.agents.events.agent_events import RunStarted
from tests.processes.project_shell import ProjectShell
from tests.processes.session_record import conversation, loaded

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
NEXT = "---\nname: next\ndescription: Finds what comes next.\n---\nRead ROADMAP.md.\n"


@pytest.fixture
def place(place: ProjectShell) -> ProjectShell:
    """A repository with an agent type and a skill."""
    (place.project / ".git").mkdir()
    place.write(".claude/agents/planner.md", PLANNER)
    place.write(".claude/skills/next/SKILL.md", NEXT)
    return place


def test_lead_without_a_task_starts_with_its_initial_prompt(place: ProjectShell) -> None:
    done = place.coterie("run", "-p", "--agent", "planner", "-", *place.model("main: [Done.]"))
    assert done.returncode == 0, done.stderr
    skill, words = place.texts()[-3:-1]
    assert "Read ROADMAP.md." in skill
    assert words == "/next Say what comes next."
    assert loaded(place.session).words == (words,)
    assert conversation(place.session).header.effort == "low"
    assert [event.color for event in place.events(RunStarted)] == ["#a855f7"]
