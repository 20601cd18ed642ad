"""`coterie memory extract` on a session that does not run: its facts become memories."""

from pathlib import Path

import pytest

from coterie.agents.runtime.setup.memory_scopes import project_memory
from coterie.memory.store.memory_store import MemoryStore
from coterie.orchestrator.session.overview import read_overview
from coterie.orchestrator.settings.settings_loader import load_settings
from tests.processes.project_shell import ProjectShell
from tests.processes.session_record import loaded

pytestmark = pytest.mark.slow

TALK = """
main:
  - text: I will remember that.
"""


class Sessions(ProjectShell):
    """Project whose sessions extract memories only on request."""

    def run(self, script: str, *arguments: str) -> None:
        """Run a session."""
        done = self.coterie("run", "Test against a real database.", *self.model(script), *arguments)
        assert done.returncode == 0, done.stderr

    @property
    def store(self) -> MemoryStore:
        """The memory of the project."""
        return MemoryStore.at(project_memory(self.project, load_settings(self.project, {}, {})).directory)

    def saving(self, name: str = "testing.md", times: str = "1") -> str:
        """Return a script in which the helper saves one memory."""
        content = (
            "---\\nname: testing\\ndescription: how tests are made\\ntype: feedback\\n---\\nUse a real database.\\n"
        )
        call = f'{{Write: {{file_path: "{self.store.directory / name}", content: "{content}"}}}}'
        return f"{TALK}default:\n  - {{purpose: extraction, times: {times}, tools: [{call}]}}\n"


@pytest.fixture
def place(project: Path, monkeypatch: pytest.MonkeyPatch) -> Sessions:
    """An empty project, whose sessions extract nothing automatically."""
    monkeypatch.setenv("COTERIE_LAYERS_EXTRACTION_ENABLED", "false")
    monkeypatch.setenv("COTERIE_LAYERS_DREAMING_ENABLED", "false")
    return Sessions(project)


def test_extraction_from_an_ended_session_runs_no_turn_and_lists_its_memories(
    place: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the model cannot be reached or its memories cannot be stored, one line is printed."""
    place.run(TALK)
    session, before = place.session, loaded(place.session)
    failed = place.coterie("memory", "extract", session.id, *place.model(TALK))
    assert failed.returncode == 1
    assert failed.stderr.startswith(f"Error: no memories were extracted from session {session.id}: ")
    refused = place.coterie("memory", "extract", session.id, *place.model(place.saving("../out.md", "always")))
    assert refused.returncode == 1
    assert "a memory could not be written" in refused.stderr
    assert place.store.paths() == []

    done = place.coterie("memory", "extract", session.id[:-1], *place.model(place.saving()))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("saved testing.md\n1 model call, $0.")
    assert place.store.paths() == ["testing.md"]
    assert "(testing.md)" in place.store.index()
    [change] = [change for change in place.store.changes() if change.path == "testing.md"]
    assert (change.author.by, change.author.agent, change.author.session) == ("extraction", "main", session.id)
    after = loaded(place.session)
    assert after.reply == before.reply, "no turn was taken"
    assert after.extraction is not None
    assert (read_overview(session).state, read_overview(session).reason) == ("ended", "completed")
    assert place.has_no_processes()

    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert place.coterie("memory", "extract", session.id).returncode == 5
    unknown = place.coterie("memory", "extract", "nobody")
    assert (unknown.returncode, "no session's id begins with 'nobody'" in unknown.stderr) == (2, True)
