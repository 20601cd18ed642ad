"""`coterie run` in a repository with skills: listed, loaded, restored after a compaction, and stable over a resume."""

import json
from pathlib import Path
from typing import Any

import pytest

from coterie.agents.events.agent_events import Event, Noticed, ToolEnded
from coterie.agents.events.layer_events import Compacted, SkillLoaded
from coterie.agents.loop.conversation.replay import replay_turns
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.memory.compaction.summary_text import block_text
from coterie.orchestrator.events.session_reader import read_session
from tests.processes.project_shell import ProjectShell

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


class Repository(ProjectShell):
    """A project, with access to the prompts of its agents."""

    def write(self, name: str, text: str) -> None:
        """Write a file of the project."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, task: str, script: str, *arguments: str) -> str:
        """Run a session, and return its last reply."""
        done = self.coterie("run", "-p", task, *self.model(script), *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def transcript(self, agent: str = "main") -> Path:
        """Return the transcript of an agent."""
        return self.session.directory / "agents" / agent / "transcript.jsonl"

    def texts(self, agent: str = "main") -> list[str]:
        """Return the blocks of the final conversation of an agent."""
        conversation = load_transcript(self.transcript(agent)).conversation
        assert conversation is not None
        return [block_text(block) for message in conversation.messages for block in message.blocks]

    def tools(self) -> list[str]:
        """Return the tools of the session's first request."""
        first = next(iter(replay_turns(self.transcript())))
        data = (segment.data for segment in first.conversation.segments if segment.section == "tools")
        return [json.loads(tool)["name"] for tool in data]

    def events_of(self, kind: type[Event]) -> list[Any]:
        """Return the events of one kind."""
        return [each.event for each in read_session(self.session.directory) if isinstance(each.event, kind)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Path) -> Repository:
    """A repository with a `.claude/` directory, and a user with a personal skill."""
    del runtime
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    repository = Repository(tmp_path / "project")
    (tmp_path / "project/.git").mkdir(parents=True)
    repository.write("CLAUDE.md", "Be brief.\n")
    repository.write(".claude/skills/release-notes/SKILL.md", NOTES)
    repository.write(".claude/skills/release-notes/style.md", "No adjectives.\n")
    repository.write(".claude/skills/broken/SKILL.md", BROKEN)
    repository.write(".claude/skills/deploy/SKILL.md", PRIVATE)
    repository.write(".claude/agents/reviewer.md", REVIEWER)
    own = tmp_path / "home/skills/review"
    own.mkdir(parents=True)
    (own / "SKILL.md").write_text(REVIEW)
    (own / "list.md").write_text("Mind the names.\n")
    return repository


LOADED = """
main:
  - tools: [{Skill: {skill: release-notes, args: version 2}}]
  - tools:
      - Read: {file_path: "{{/directory=.(.+?).>/}}/style.md"}
      - Skill: {skill: release-note}
      - Skill: {skill: deploy}
  - text: "{{tool_result.0}} | {{tool_result.1}} | {{tool_result.2}}"
"""


def test_a_skill_is_listed_and_loaded_and_its_files_can_be_read(place: Repository) -> None:
    said = place.run("Write the notes.", LOADED)
    style, unknown, private = said.split(" | ")
    assert "No adjectives." in style
    assert unknown == "Unknown skill 'release-note'; did you mean release-notes?"
    assert private == "Only the user can start the skill deploy, with /deploy."
    [context] = [text for text in place.texts() if "<skills>" in text]
    assert "- release-notes: Writes the notes of a release." in context
    assert "- review: Reviews a change." in context
    assert "deploy" not in context
    [loaded] = [text for text in place.texts() if text.startswith("<skill name=")]
    assert "Write for version 2." in loaded
    assert "license" not in loaded
    assert place.tools()[-1] == "Skill"
    [broken] = place.events_of(Noticed)
    assert broken.source.endswith("broken/SKILL.md:1")
    assert broken.reason.startswith("no front matter")


@pytest.mark.soak
def test_the_files_of_a_users_skill_can_be_read_and_not_written(place: Repository) -> None:
    script = """
main:
  - tools: [{Skill: {skill: review, args: a.py}}]
  - tools:
      - Read: {file_path: "{{/directory=.(.+?).>/}}/list.md"}
      - Write: {file_path: "{{/directory=.(.+?).>/}}/new.md", content: x}
  - text: "{{tool_result.0}} | {{tool_result.1}}"
"""
    read, written = place.run("Review.", script, "--permission-mode", "acceptEdits").split(" | ")
    assert "Mind the names." in read
    assert "is protected" in written


def test_a_project_without_skills_has_no_tool_for_them(place: Repository, tmp_path: Path) -> None:
    bare = Repository(tmp_path / "bare")
    bare.project.mkdir()
    (tmp_path / "home/skills/review/SKILL.md").unlink()
    bare.run("Go.", "main: [Done.]")
    assert "Skill" not in bare.tools()
    assert not any("<skills>" in text for text in bare.texts())
    del place


@pytest.mark.soak
def test_a_bare_run_leaves_skills_out(place: Repository) -> None:
    place.run("Go.", "main: [Done.]", "--bare")
    assert "Skill" not in place.tools()


@pytest.mark.soak
def test_skills_can_be_switched_off(place: Repository) -> None:
    place.write(".coterie/settings.toml", "[skills]\nenabled = false\n")
    place.run("/deploy", "main: [Done.]")
    assert "Skill" not in place.tools()
    assert place.texts()[-2] == "/deploy"


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


@pytest.mark.usefixtures("small")
def test_loaded_skills_are_restored_after_a_compaction_the_last_one_first(place: Repository) -> None:
    assert place.run("Go.", LONG, "--permission-mode", "bypassPermissions") == "Done."
    compacted = place.events_of(Compacted)
    assert compacted[0].trigger == "threshold"
    assert compacted[0].skills == ["release-notes", "review"]
    [restored] = [text for text in place.texts() if text.startswith("<restored-skills>")]
    assert restored.index("Write for version 2.") < restored.index("Look at a.py line by line")
    [listed] = [text for text in place.texts() if "<skills>" in text]
    assert "- review: Reviews a change." in listed


@pytest.mark.soak
@pytest.mark.usefixtures("small")
def test_no_more_is_restored_than_the_caps_allow(place: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_LAYERS_COMPACTION_SKILL", "500")
    monkeypatch.setenv("COTERIE_LAYERS_COMPACTION_SKILLS_TOTAL", "500")
    place.write(".claude/skills/release-notes/SKILL.md", NOTES + "\n".join(map(str, range(10_000, 12_000))))
    place.run("Go.", LONG, "--permission-mode", "bypassPermissions")
    [restored] = [text for text in place.texts() if text.startswith("<restored-skills>")]
    assert place.events_of(Compacted)[0].skills == ["release-notes"]
    assert "Write for version 2." in restored
    assert f"there is more; read {place.project / '.claude/skills/release-notes/SKILL.md'}" in restored
    assert 1_500 < len(restored) < 2_500


@pytest.mark.soak
@pytest.mark.usefixtures("small")
def test_resumed_session_keeps_loaded_skills_and_sends_the_same_bytes(place: Repository) -> None:
    """Two turns, a resume with added and changed skills, then a compaction."""
    script = LONG.replace("""  - tools: [{Bash: {command: "seq 10000 12500"}}]""", "  - text: Stop here.", 1)
    place.run("Go.", script, "--permission-mode", "bypassPermissions")
    before = load_transcript(place.transcript()).conversation
    assert before is not None
    place.write(".claude/skills/another/SKILL.md", REVIEW.replace("name: review", "name: another"))
    done = place.coterie(
        "resume", place.session.id, "Go on.", *place.model(script), "--permission-mode", "bypassPermissions"
    )
    assert done.returncode == 0, done.stderr
    turns = list(replay_turns(place.transcript()))
    assert turns[3].conversation.prefix.hash_at(len(before)) == before.prefix_hash
    assert place.events_of(Compacted)[0].skills == ["release-notes", "review"]


def test_the_user_starts_a_skill_by_its_name(place: Repository) -> None:
    place.run("/deploy to the moon", "main: [Done.]")
    [asked] = [text for text in place.texts() if text.startswith("The user has started the skill deploy")]
    assert "Ship it.\n\nArguments: to the moon" in asked
    assert "/deploy to the moon" in place.texts()
    [loaded] = place.events_of(SkillLoaded)
    assert (loaded.name, loaded.by) == ("deploy", "user")
    assert load_transcript(place.transcript()).words == ("/deploy to the moon",)


@pytest.mark.soak
def test_unknown_skill_name_is_a_normal_task(place: Repository) -> None:
    place.run("/etc/hosts is wrong", "main: [Done.]")
    assert place.texts()[-2] == "/etc/hosts is wrong"
    assert place.events_of(SkillLoaded) == []


def test_a_definition_begins_with_its_skills(place: Repository) -> None:
    script = """
main:
  - tools: [{Agent: {description: look, prompt: "Look.", name: helper, subagent_type: reviewer}}]
  - text: Done.
helper:
  - tools: [{Skill: {skill: release-notes}}]
  - text: "{{last_tool_result}}"
"""
    place.run("Go.", script)
    [preloaded] = [text for text in place.texts("helper") if text.startswith("These skills are already loaded")]
    assert "line by line" in preloaded
    assert not any("<skills>" in text for text in place.texts("helper"))
    assert [event.reason for event in place.events_of(Noticed)][1:] == ["unknown skill 'no-such-skill'"]
    assert [event.reason for event in place.events_of(ToolEnded) if event.is_error] == [
        "Agents of the type reviewer may not do this."
    ]


@pytest.mark.usefixtures("small")
def test_fork_has_the_loaded_skills_of_its_parent(place: Repository) -> None:
    script = f"""
main:
  - tools: [{{Skill: {{skill: review, args: a.py}}}}]
  - tools: [{{Agent: {{description: go on, prompt: "Go on.", name: twin, subagent_type: fork}}}}]
  - text: Done.
  - text: Done.
twin:
  - tools: [{{Bash: {{command: "seq 10000 12500"}}}}]
  - tools: [{{Bash: {{command: "seq 20000 22500"}}}}]
  - tools: [{{Bash: {{command: "seq 30000 32500"}}}}]
  - tools: [{{Bash: {{command: "seq 40000 42500"}}}}]
  - tools: [{{Bash: {{command: "seq 50000 52500"}}}}]
  - tools: [{{Bash: {{command: "seq 60000 62500"}}}}]
  - text: Done.
{SUMMARY}"""
    place.run("Go.", script, "--permission-mode", "bypassPermissions")
    assert place.events_of(Compacted)[0].skills == ["review"]
    assert any("Look at a.py line by line" in text for text in place.texts("twin"))
