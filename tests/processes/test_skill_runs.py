"""`coterie run` in a repository with skills: listed, loaded, restored after a compaction, and stable over a resume."""

import pytest

from coterie.agents.events.agent_events import HookRan, Noticed, RunStarted, ToolEnded
from coterie.agents.events.layer_events import Compacted, SkillLoaded
from coterie.agents.loop.conversation.replay import replay_turns
from coterie.session_directory import TRANSCRIPT
from tests.processes.project_shell import BYPASS, ProjectShell
from tests.processes.session_record import loaded

pytestmark = pytest.mark.slow

NOTES = """---
name: release-notes
description: Writes the notes of a release. Use before every release.
allowed-tools: Bash(git log:*), Write
license: MIT
---
# How to write release notes

Read `style.md` beside this file. Write for $ARGUMENTS.
"""
REVIEW = """---
name: review
description: Reviews a change. Use after an edit.
argument-hint: [path]
---
Look at $ARGUMENTS line by line, from ${CLAUDE_SKILL_DIR}.
"""
BROKEN = "# A skill without front matter\n\nIt says nothing of itself.\n"
PRIVATE = """---
name: deploy
description: Ships it.
disable-model-invocation: true
---
Ship it.
"""
REVIEWER = """---
name: reviewer
description: Reviews. Use after every edit.
tools: Read, Grep
skills: review, no-such-skill
---
You review.
"""


def run(place: ProjectShell, task: str, script: str, *arguments: str) -> str:
    """Run a session, and return its last reply."""
    done = place.coterie("run", "-p", task, *place.model(script), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def place(place: ProjectShell) -> ProjectShell:
    """A repository with a `.claude/` directory, and a user with a personal skill."""
    (place.project / ".git").mkdir(parents=True)
    place.write("CLAUDE.md", "Be brief.\n")
    place.write(".claude/skills/release-notes/SKILL.md", NOTES)
    place.write(".claude/skills/release-notes/style.md", "No adjectives.\n")
    place.write(".claude/skills/broken/SKILL.md", BROKEN)
    place.write(".claude/skills/deploy/SKILL.md", PRIVATE)
    place.write(".claude/agents/reviewer.md", REVIEWER)
    place.write("../home/skills/review/SKILL.md", REVIEW)
    place.write("../home/skills/review/list.md", "Mind the names.\n")
    return place


LOADED = """
main:
  - tools: [{Skill: {skill: release-notes, args: version 2}}]
  - tools:
      - Read: {file_path: "{{/directory=.(.+?).>/}}/style.md"}
      - Skill: {skill: release-note}
      - Skill: {skill: deploy}
  - text: "{{tool_result.0}} | {{tool_result.1}} | {{tool_result.2}}"
"""


def test_a_skill_is_listed_and_loaded_and_its_files_can_be_read(place: ProjectShell) -> None:
    said = run(place, "Write the notes.", LOADED)
    style, unknown, private = said.split(" | ")
    assert "No adjectives." in style
    assert unknown == "Unknown skill 'release-note'; did you mean release-notes?"
    assert "Ask the user to enter /deploy." in private
    [context] = [text for text in place.texts() if "<skills>" in text]
    assert "- release-notes: Writes the notes of a release." in context
    assert "- review: Reviews a change." in context
    assert "deploy" not in context
    [skill] = [text for text in place.texts() if text.startswith("<skill name=")]
    assert "Write for version 2." in skill
    assert "license" not in skill
    assert place.events(RunStarted)[0].tools[-1] == "Skill"
    [broken] = place.events(Noticed)
    assert broken.source.endswith("broken/SKILL.md:1")
    assert broken.reason.startswith("no front matter")


SUMMARY = """
default:
  - purpose: compaction
    times: always
    text: "<summary>It went well.</summary>"
"""
LONG = f"""
main:
  - tools: [{{Skill: {{skill: review, args: a.py}}}}]
  - tools: [{{Skill: {{skill: release-notes, args: version 2}}}}]
  - tools: [{{Bash: {{command: "seq 10000 12500"}}}}]
  - tools: [{{Bash: {{command: "seq 20000 22500"}}}}]
  - tools: [{{Bash: {{command: "seq 30000 32500"}}}}]
  - tools: [{{Bash: {{command: "seq 40000 42500"}}}}]
  - tools: [{{Bash: {{command: "seq 50000 52500"}}}}]
  - tools: [{{Bash: {{command: "seq 60000 62500"}}}}]
  - text: Done.
  - text: Done again.
{SUMMARY}"""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings with a window that is full after a few turns, of which little stays."""
    settings = {
        "WINDOW_COMPACT_WINDOW": "60000",
        "CLEARING_BY_TIME": "false",
        "CLEARING_BY_CACHE": "false",
        "CLEARING_BY_API": "false",
        "NOTES_ENABLED": "false",
        "COMPACTION_KEEP_LEAST": "1",
        "COMPACTION_KEEP_TEXTS": "1",
        "COMPACTION_KEEP_MOST": "5000",
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"COTERIE_LAYERS_{name}", value)


HOOKS = """
[[hooks.SessionStart]]
matcher = "compact"
command = "echo It was Tuesday."
[[hooks.PreCompact]]
matcher = "manual"
command = "exit 2"
[[hooks.PostCompact]]
command = "true"
"""


@pytest.mark.usefixtures("small")
def test_a_compaction_runs_its_hooks_and_restores_loaded_skills_the_last_one_first(place: ProjectShell) -> None:
    place.write("../home/settings.toml", HOOKS)
    assert run(place, "Go.", LONG, *BYPASS) == "Done."
    compacted = place.events(Compacted)
    assert compacted[0].trigger == "threshold"
    assert compacted[0].skills == ["release-notes", "review"]
    [restored] = [text for text in place.texts() if text.startswith("<restored-skills>")]
    assert restored.index("Write for version 2.") < restored.index("Look at a.py line by line")
    [listed] = [text for text in place.texts() if "<skills>" in text]
    assert "- review: Reviews a change." in listed
    assert [event.event for event in place.events(HookRan)][:2] == ["PostCompact", "SessionStart"]
    assert '<hook event="SessionStart">\nIt was Tuesday.\n</hook>' in place.texts()


@pytest.mark.usefixtures("small")
def test_resumed_session_keeps_loaded_skills_and_sends_the_same_bytes(place: ProjectShell) -> None:
    """Two turns, a resume with added and changed skills, then a compaction."""
    script = LONG.replace("""  - tools: [{Bash: {command: "seq 10000 12500"}}]""", "  - text: Stop here.", 1)
    run(place, "Go.", script, *BYPASS)
    before = loaded(place.session).conversation
    assert before is not None
    place.write(".claude/skills/another/SKILL.md", REVIEW.replace("name: review", "name: another"))
    done = place.coterie("resume", place.session.id, "Go on.", *place.model(script), *BYPASS)
    assert done.returncode == 0, done.stderr
    turns = list(replay_turns(place.session.agent_directory("main") / TRANSCRIPT))
    assert turns[3].conversation.prefix.hash_at(len(before)) == before.prefix_hash
    assert place.events(Compacted)[0].skills == ["release-notes", "review"]


def test_the_user_starts_a_skill_by_its_name(place: ProjectShell) -> None:
    run(place, "/deploy to the moon", "main: [Done.]")
    [asked] = [text for text in place.texts() if text.startswith("The user has started the skill deploy")]
    assert "Ship it.\n\nArguments: to the moon" in asked
    assert "/deploy to the moon" in place.texts()
    [event] = place.events(SkillLoaded)
    assert (event.name, event.by) == ("deploy", "user")
    assert loaded(place.session).words == ("/deploy to the moon",)


def test_a_definition_begins_with_its_skills(place: ProjectShell) -> None:
    script = """
main:
  - tools: [{Agent: {description: look, prompt: "Look.", name: helper, subagent_type: reviewer}}]
  - text: Done.
helper:
  - tools: [{Skill: {skill: release-notes}}]
  - text: "{{last_tool_result}}"
"""
    run(place, "Go.", script)
    [preloaded] = [text for text in place.texts("helper") if text.startswith("These skills are already loaded")]
    assert "line by line" in preloaded
    assert not any("<skills>" in text for text in place.texts("helper"))
    assert [event.reason for event in place.events(Noticed)][1:] == [
        "unknown skill 'no-such-skill'; no name is similar"
    ]
    assert [event.reason for event in place.events(ToolEnded) if event.is_error] == [
        "Agents of the type reviewer may not do this. Use another tool."
    ]
