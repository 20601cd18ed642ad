"""`coterie compact` for busy agents, idle agents, and sessions that do not run, in real processes."""

import json
from pathlib import Path

import pytest

from coterie.agents.events.layer_events import Compacted
from coterie.agents.loop.loop import INTERRUPTED
from coterie.orchestrator.events.session_reader import read_session
from coterie.orchestrator.session.overview import read_members, read_overview
from coterie.orchestrator.session.root_lock import find_root
from tests.processes.project_shell import BYPASS, PATIENCE, ProjectShell
from tests.processes.session_record import conversation, loaded

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
        options = (*BYPASS, *arguments)
        done = self.coterie("run", "Go.", *self.model(script), *options)
        assert done.returncode == 0, done.stderr

    def messages(self, agent: str = "main") -> list[str]:
        """Return the messages of an agent's conversation, as JSON."""
        return [b"".join(message.blocks).decode() for message in conversation(self.session, agent).messages]

    def compacted(self) -> list[tuple[str, str, str]]:
        """Return the agent, reason and strategy of each compaction."""
        told = ((each.agent, each.event) for each in read_session(self.session.directory))
        return [(agent, event.trigger, event.by) for agent, event in told if isinstance(event, Compacted)]


@pytest.fixture
def place(project: Path, monkeypatch: pytest.MonkeyPatch) -> Sessions:
    """An empty project, whose agents keep little of the end of a conversation."""
    monkeypatch.setenv("COTERIE_LAYERS_COMPACTION_KEEP_LEAST", "1")
    monkeypatch.setenv("COTERIE_LAYERS_COMPACTION_KEEP_TEXTS", "1")
    return Sessions(project)


def test_idle_agent_is_compacted_immediately_and_busy_one_before_a_call(place: Sessions) -> None:
    script = f"""
main:
  - tools: [{{TaskCreate: {{subject: measure it, description: as it is}}}}]
  - tools: [{{Agent: {{description: help, prompt: "Help me.", name: helper, stays: true}}}}]
  - tools: [{{Bash: {{command: "touch begun; while [ ! -e go ]; do sleep 0.05; done; echo gone"}}}}]
  - text: "The end: {{{{last_tool_result}}}}"
helper:
  - tools: [{{SendMessage: {{to: main, message: "May I change a.py?"}}}}]
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
    reason = "Error: the conversation of helper was not compacted: message 9 does not exist in the conversation; "
    assert (wrong.returncode, wrong.stderr.startswith(reason)) == (2, True)

    done = place.coterie("compact", session.id, "--agent", "helper", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert (facts["agent"], facts["by"], facts["left"], facts["kept"]) == ("helper", "summary", 3, 1)
    assert place.coterie("mail", "send", "--session", session.id, "--to", "helper", "Wake up.").returncode == 0
    assert place.becomes_true((place.project / "woken").exists)
    assert "All of it went well." in place.messages("helper")[0]

    with place.start("compact", session.id) as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline() == "main is running; it is compacted before its next model call\n"
        (place.project / "go").touch()
        output, _ = waiting.communicate(timeout=PATIENCE)
        assert waiting.returncode == 0
        assert output.startswith(f"compacted main of session {session.id} by summary:")
    assert place.becomes_true(lambda: find_root(session) is None)
    assert sorted(place.compacted()) == [("helper", "manual", "summary"), ("main", "manual", "summary")]
    first = place.messages()[0]
    assert "All of it went well." in first
    for pinned in ("- helper (kind general-purpose; started by main): ", "measure it", "May I change a.py?"):
        assert pinned in first
    # A root removes its record a moment before it ends.
    assert place.becomes_true(place.has_no_processes)

    done = place.coterie("compact", session.id, "--agent", "helper", *place.model(script), "--json")
    assert (done.returncode, json.loads(done.stdout)["agent"]) == (0, "helper")
    helper = read_members(session)["helper"]
    assert (helper.incarnation, helper.state, helper.engagement.task) == (2, "ended", "Help me.")


def test_ended_session_is_compacted_without_a_turn_and_can_be_resumed(
    place: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a message selects the part, the content before it stays unchanged."""
    place.run(THREE_TURNS)
    session, before, texts = place.session, loaded(place.session), place.messages()
    refusals = {
        ("--from", "1", "--up-to", "2"): "cannot be used together",
        (
            "--agent",
            "mian",
            *place.model(THREE_TURNS),
        ): f"Error: session {session.id} has no agent 'mian'; did you mean main?",
        ("--up-to", "9", *place.model(THREE_TURNS)): "message 9 does not exist in the conversation",
    }
    for options, reason in refusals.items():
        refused = place.coterie("compact", session.id, *options)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert reason in refused.stderr
    with monkeypatch.context() as patch:
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
            patch.delenv(name, raising=False)
        assert place.coterie("compact", session.id).returncode == 5
    assert loaded(session).size == before.size
    done = place.coterie("compact", session.id[:-1], "--from", "4", *place.model(THREE_TURNS))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"compacted main of session {session.id} by summary: ")
    after = loaded(place.session)
    assert after.boundary is not None
    assert (after.boundary.trigger, after.boundary.left) == ("manual", 3)
    assert after.reply == before.reply, "no turn was taken"
    assert place.messages()[:3] == texts[:3]
    assert texts[3] not in place.messages()
    assert (read_overview(session).state, read_overview(session).reason) == ("ended", "completed")
    assert place.has_no_processes()

    resumed = place.coterie("resume", session.id, "More.", *place.model(THREE_TURNS), *BYPASS, "-p")
    assert (resumed.returncode, resumed.stdout) == (0, "Next: More.\n")
    assert any("All of it went well." in text for text in place.messages())


def test_killed_session_is_compacted_and_resumed(place: Sessions) -> None:
    script = THREE_TURNS.replace("echo two", "touch begun; sleep 300")
    place.run(script, "--detach")
    session = place.session
    assert place.becomes_true((place.project / "begun").exists)
    place.kill_root()
    assert place.becomes_true(place.has_no_processes)

    done = place.coterie("compact", session.id, "--up-to", "4", *place.model(script))
    assert done.returncode == 0, done.stderr
    # The record of the lead's stop depends on which process noticed the end of the root first.
    assert read_overview(session).reason in (None, "cancelled")
    assert INTERRUPTED.text in place.messages()[-1]
    resumed = place.coterie("resume", session.id, *place.model(script), *BYPASS, "-p")
    assert (resumed.returncode, resumed.stdout) == (0, "That was it.\n")
