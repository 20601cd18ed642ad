"""`coterie compact` for busy agents, idle agents, and sessions that do not run, in real processes."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from coterie.agents.events.layer_events import Compacted
from coterie.agents.loop.conversation.transcript import LoadedTranscript, load_transcript
from coterie.agents.loop.loop import INTERRUPTED
from coterie.orchestrator.events.session_reader import read_session
from coterie.orchestrator.session.overview import read_members, read_overview
from coterie.orchestrator.session.root_lock import find_root
from tests.processes.project_shell import PATIENCE, ProjectShell
from tests.processes.session_processes import has_no_processes

pytestmark = pytest.mark.slow

SUMMARY = """
default:
  - purpose: compaction
    times: always
    text: "<analysis>Hm.</analysis><summary>All of it went well.</summary>"
"""
THREE_TURNS = f"""
main:
  - tools: [{{Bash: {{command: "echo one"}}}}]
  - tools: [{{Bash: {{command: "echo two"}}}}]
  - text: That was it.
  - text: "Next: {{{{last_user_text}}}}"
{SUMMARY}"""


class Sessions(ProjectShell):
    """Project for sessions whose agents are compacted."""

    def run(self, script: str, *arguments: str) -> None:
        """Run a session."""
        options = ("--permission-mode", "bypassPermissions", *arguments)
        done = self.coterie("run", "Go.", *self.model(script), *options)
        assert done.returncode == 0, done.stderr

    def loaded(self, agent: str = "main") -> LoadedTranscript:
        """Return the content of an agent's transcript."""
        return load_transcript(self.session.directory / "agents" / agent / "transcript.jsonl")

    def texts(self, agent: str = "main") -> list[str]:
        """Return the messages of an agent's conversation, as JSON."""
        conversation = self.loaded(agent).conversation
        assert conversation is not None
        return [b"".join(message.blocks).decode() for message in conversation.messages]

    def compacted(self) -> list[tuple[str, str, str]]:
        """Return the agent, reason and strategy of each compaction."""
        told = ((each.agent, each.event) for each in read_session(self.session.directory))
        return [(agent, event.trigger, event.by) for agent, event in told if isinstance(event, Compacted)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Path) -> Sessions:
    """An empty project, whose agents keep little of the end of a conversation."""
    del runtime
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COTERIE_LAYERS_COMPACTION_KEEP_LEAST", "1")
    monkeypatch.setenv("COTERIE_LAYERS_COMPACTION_KEEP_TEXTS", "1")
    (tmp_path / "project").mkdir()
    return Sessions(tmp_path / "project")


def test_idle_agent_is_compacted_immediately_and_busy_one_before_a_call(place: Sessions) -> None:
    script = f"""
main:
  - tools: [{{Agent: {{description: help, prompt: "Help me.", name: helper, stays: true}}}}]
  - tools: [{{Bash: {{command: "touch begun; while [ ! -e go ]; do sleep 0.05; done; echo gone"}}}}]
  - text: "The end: {{{{last_tool_result}}}}"
helper:
  - tools: [{{Bash: {{command: "echo helping"}}}}]
  - text: Ready.
  - tools: [{{Bash: {{command: "touch woken"}}}}]
  - text: Woken.
{SUMMARY}"""
    place.run(script, "--detach")
    session = place.session
    assert place.becomes_true(lambda: (place.project / "begun").exists() and place.state("helper") == "idle")

    wrong = place.coterie("compact", session.id, "--agent", "hleper")
    assert (wrong.returncode, wrong.stderr) == (2, "Error: agent: 'hleper' is not running; did you mean helper?\n")
    wrong = place.coterie("compact", session.id, "--agent", "helper", "--from", "9")
    reason = "helper was not compacted: message 9 does not exist: the conversation has 4 messages"
    assert (wrong.returncode, wrong.stderr) == (2, f"Error: {reason}\n")

    done = place.coterie("compact", session.id, "--agent", "helper", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["agent"], facts["by"], facts["left"], facts["kept"]) == ("helper", "summary", 3, 1)
    assert place.coterie("mail", "send", "--session", session.id, "--to", "helper", "Wake up.").returncode == 0
    assert place.becomes_true((place.project / "woken").exists)
    assert "All of it went well." in place.texts("helper")[0]

    with subprocess.Popen(
        place.command("compact", session.id), cwd=place.project, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == b"main is running; it is compacted before its next model call\n"
        (place.project / "go").touch()
        output, _ = waiting.communicate(timeout=PATIENCE)
        assert (waiting.returncode, output.decode().partition(":")[0]) == (
            0,
            f"compacted main of session {session.id} by summary",
        )
    assert place.becomes_true(lambda: find_root(session) is None)
    assert sorted(place.compacted()) == [("helper", "manual", "summary"), ("main", "manual", "summary")]
    first = place.texts()[0]
    assert "All of it went well." in first
    assert "- helper (kind general-purpose; started by main): " in first
    # A root removes its record a moment before it ends.
    assert place.becomes_true(lambda: has_no_processes(session))

    done = place.coterie("compact", session.id, "--agent", "helper", *place.model(script), "--json")
    assert (done.returncode, json.loads(done.stdout)["agent"]) == (0, "helper")
    helper = read_members(session)["helper"]
    assert (helper.incarnation, helper.state, helper.engagement.task) == (2, "ended", "Help me.")


def test_ended_session_is_compacted_without_a_turn_and_can_be_resumed(place: Sessions) -> None:
    """If a message selects the part, the content before it stays unchanged."""
    place.run(THREE_TURNS)
    session, before, texts = place.session, place.loaded(), place.texts()
    done = place.coterie("compact", session.id[:-1], "--from", "4", *place.model(THREE_TURNS))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"compacted main of session {session.id} by summary: ")
    after = place.loaded()
    assert after.boundary is not None
    assert (after.boundary.trigger, after.boundary.left) == ("manual", 3)
    assert after.reply == before.reply, "no turn was taken"
    assert place.texts()[:3] == texts[:3]
    assert texts[3] not in place.texts()
    assert (read_overview(session).state, read_overview(session).reason) == ("ended", "completed")
    assert has_no_processes(session)

    options = ("--permission-mode", "bypassPermissions", "-p")
    resumed = place.coterie("resume", session.id, "More.", *place.model(THREE_TURNS), *options)
    assert (resumed.returncode, resumed.stdout) == (0, "Next: More.\n")
    assert any("All of it went well." in text for text in place.texts())


def test_killed_session_is_compacted_and_resumed(place: Sessions) -> None:
    script = THREE_TURNS.replace("echo two", "touch begun; sleep 300")
    place.run(script, "--detach")
    session = place.session
    assert place.becomes_true((place.project / "begun").exists)
    root = find_root(session)
    assert root is not None
    os.kill(root.pid, signal.SIGKILL)
    assert place.becomes_true(lambda: has_no_processes(session))

    done = place.coterie("compact", session.id, "--up-to", "4", *place.model(script))
    assert done.returncode == 0, done.stderr
    # The record of the lead's stop depends on which process noticed the end of the root first.
    assert read_overview(session).reason in (None, "cancelled")
    assert INTERRUPTED.text in place.texts()[-1]
    options = ("--permission-mode", "bypassPermissions", "-p")
    resumed = place.coterie("resume", session.id, *place.model(script), *options)
    assert (resumed.returncode, resumed.stdout) == (0, "That was it.\n")


def test_invalid_or_too_short_selection_is_refused_in_one_line(
    place: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"main: [{{text: Hello.}}]\n{SUMMARY}"
    place.run(script)
    session, model = place.session.id, place.model(script)
    transcript = place.session.directory / "agents/main/transcript.jsonl"
    before = transcript.read_bytes()
    both = place.coterie("compact", session, "--from", "1", "--up-to", "2")
    assert (both.returncode, "cannot be used together" in both.stderr) == (2, True)
    unknown = place.coterie("compact", session, "--agent", "mian", *model)
    reason = f"session {session} has no agent 'mian'; did you mean main?"
    assert (unknown.returncode, unknown.stderr) == (2, f"Error: {reason}\n")
    beyond = place.coterie("compact", session, "--up-to", "7", *model)
    reason = "message: message 7 does not exist: the conversation has 2 messages"
    assert (beyond.returncode, beyond.stderr) == (2, f"Error: main was not compacted: {reason}\n")
    short = place.coterie("compact", session, *model)
    reason = "main was not compacted: the conversation is too short to compact"
    assert (short.returncode, short.stderr) == (1, f"Error: {reason}\n")
    assert transcript.read_bytes() == before
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert place.coterie("compact", place.session.id).returncode == 5
