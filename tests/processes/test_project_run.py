"""`coterie run` in a project with settings, instruction files, agent types and allowed hosts."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from coterie.agents.events.agent_events import RunStarted
from tests.agents.tools.web.local_site import Site, open_site
from tests.orchestrator.pseudo_terminal import open_program
from tests.processes.project_shell import BYPASS, ProjectShell
from tests.processes.session_record import conversation, loaded

pytestmark = pytest.mark.slow

SCRIPT = """
default:
  - tools:
      - Bash: {command: "echo from the shell"}
      - Write: {file_path: new.txt, content: new}
      - Read: {file_path: notes.txt}
  - text: "{{first_user_text}} | {{tool_result.0}} | {{tool_result.1}} | {{tool_result.2}}"
"""

CLERK = """---
name: clerk
description: Reads and counts.
tools: Read, Bash(wc:*)
model: haiku
maxTurns: 5
---
You are a clerk.
"""


@pytest.fixture
def place(place: ProjectShell) -> ProjectShell:
    """A repository with settings, instructions and an agent type."""
    (place.project / ".git").mkdir()
    place.write("notes.txt", "a note\n")
    place.write("CLAUDE.md", "Be brief. See @../outside.md\n")
    place.write("../outside.md", "Words from outside.\n")
    place.write(".coterie/settings.toml", '[permissions]\nallow = ["Bash(echo:*)"]\ndeny = ["Read(notes.txt)"]\n')
    place.write(".coterie/agents/clerk.md", CLERK)
    return place


def run(place: ProjectShell, script: str, *arguments: str) -> list[dict[str, Any]]:
    done = place.coterie("run", "Go.", "--output-format", "stream-json", *place.model(script), *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def kind(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["kind"] == name]


def test_settings_and_instruction_files_of_the_project_apply(place: ProjectShell) -> None:
    place.write(".claude/rules/web/style.md", "---\npaths: web/**\n---\nNo tabs.\n")
    place.write("agents.md", "Spelt small.\n")
    place.write("AGENTS.override.md", "Mine alone.\n")
    seen = run(place, SCRIPT)
    [finished] = kind(seen, "finished")
    context, shell, written, read = finished["result"].split(" | ")
    assert "Be brief." in context
    assert "Words from outside." not in context
    assert ' for="web/**">\nNo tabs.\n' in context
    assert "Mine alone." in context
    assert "Spelt small." not in context
    assert shell == "from the shell"
    assert written.startswith("Write needs the user's permission")
    assert read == "The rule Read(notes.txt) denies this call."
    assert [(event["tool"], event["verdict"], event["by"]) for event in kind(seen, "decided")] == [
        ("Bash", "allowed", "Bash(echo:*)"),
        ("Write", "denied", "default"),
        ("Read", "denied", "Read(notes.txt)"),
    ]
    assert ["outside.md" in event["reason"] for event in kind(seen, "noticed")] == [True]


def test_bare_agent_type_keeps_its_model_and_limits_when_resumed(place: ProjectShell) -> None:
    seen = run(place, SCRIPT, "--agent", "clerk", "--bare", *BYPASS)
    [started], [finished] = kind(seen, "started"), kind(seen, "finished")
    assert (started["definition"], started["model"]) == ("clerk", "claude-haiku-5-5")
    context, shell, written, read = finished["result"].split(" | ")
    assert "Be brief." not in context, "a bare run reads no instruction files"
    assert shell == written == "Agents of the type clerk may not do this. Use another tool."
    assert read == "The rule Read(notes.txt) denies this call."
    again = place.coterie("resume", started["session"], "Again.", *place.model(SCRIPT), "--output-format", "json")
    assert json.loads(again.stdout)["model"] == "claude-haiku-5-5"


def test_too_small_budget_is_reported_before_any_spending(place: ProjectShell) -> None:
    done = place.coterie("run", "Go.", *place.model(SCRIPT), "--max-budget-usd", "0.01")
    assert done.returncode == 3
    assert "$0.0000 of $0.01 are spent, and the next call may cost up to $0.1" in done.stderr


def test_at_a_terminal_a_file_from_outside_is_asked_about_once(place: ProjectShell) -> None:
    model = place.model('default: [{text: "{{first_user_text}}", times: always}]')
    for is_new in (True, False):
        with open_program(place.command("run", "Go.", *model), cwd=place.project, env=os.environ) as program:
            if is_new:
                program.read_until("outside.md. Allow this file? [y/N]")
                program.type("y\n")
            program.read_until("Words from outside.")
            assert program.wait() == 0
            assert ("Allow this file?" in program.output) == is_new


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


def test_lead_without_a_task_starts_with_its_initial_prompt(place: ProjectShell) -> None:
    place.write(".claude/agents/planner.md", PLANNER)
    place.write(".claude/skills/next/SKILL.md", NEXT)
    done = place.coterie("run", "-p", "--agent", "planner", "-", *place.model("main: [Done.]"))
    assert done.returncode == 0, done.stderr
    skill, words = place.texts()[-3:-1]
    assert "Read ROADMAP.md." in skill
    assert words == "/next Say what comes next."
    assert loaded(place.session).words == (words,)
    assert conversation(place.session).header.effort == "low"
    assert [event.color for event in place.events(RunStarted)] == ["#a855f7"]


@pytest.fixture
def site() -> Iterator[Site]:
    with open_site() as opened:
        opened.page("/", "<title>Home</title><p>The answer is <b>42</b>.")
        yield opened


def page_script(site: Site) -> str:
    """Return a script in which the model requests a page, and starts another agent that does."""
    return f"""
main:
  - tools: [{{WebFetch: {{url: "http://localhost:{site.port}/"}}}}]
  - text: "It says: {{{{last_tool_result}}}}"
    tools: [{{WebFetch: {{url: "http://localhost:{site.port + 1}/"}}}}]
  - text: "And there: {{{{last_tool_result}}}}"
  - {{text: "Again: {{{{last_tool_result}}}}", times: always}}
"""


def list_hosts(place: ProjectShell, *hosts: str) -> None:
    """Write *hosts* into the settings of the user."""
    place.write("../home/settings.toml", f"[web]\nhosts = {list(hosts)!r}\n")


def test_only_pages_of_allowed_hosts_are_read(place: ProjectShell, site: Site) -> None:
    list_hosts(place, f"localhost:{site.port}", f"127.0.0.1:{site.port}", f"[::1]:{site.port}")
    done = place.coterie("run", "look", *place.model(page_script(site)))
    assert done.returncode == 0, done.stderr
    assert "The answer is **42**." in done.stdout
    assert f"localhost:{site.port + 1} is not among the allowed hosts" in done.stdout
    assert site.asked == [(f"localhost:{site.port}", "/")]
    # The conversation keeps the tool; the current list decides about calls.
    list_hosts(place)
    again = "main:\n  - text: x\n  - text: x\n  - text: x\n" + page_script(site).removeprefix("\nmain:\n")
    done = place.coterie("resume", place.session.id, "look again", *place.model(again))
    assert "is not among the allowed hosts: none" in done.stdout, done.stderr
    assert ["WebFetch" in run.tools for run in place.events(RunStarted)] == [True, True]
    assert len(site.asked) == 1
