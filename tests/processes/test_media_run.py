"""An agent that reads notebooks and PDFs: content sent, changes made, and cost."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coterie.agents.loop.conversation.transcript import load_transcript
from tests.agents.tools.files.notebook_files import PICTURE, analysis, code, written
from tests.agents.tools.files.pdf_files import encrypted, pdf
from tests.processes.test_run_command import environment

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def run(project: Path, script: dict[str, Any], *arguments: str) -> subprocess.CompletedProcess[str]:
    (project.parent / "script.yaml").write_text(json.dumps(script))
    command = [sys.executable, "-P", "-m", "coterie", "run", "Look.", "--script", "../script.yaml", "-p", *arguments]
    done = subprocess.run(
        command, cwd=project, env=environment(project), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def results(project: Path) -> list[dict[str, Any]]:
    """Return the tool results as they were sent to the model."""
    [path] = (project.parent / "home").glob("projects/*/sessions/*/agents/main/transcript.jsonl")
    conversation = load_transcript(path).conversation
    assert conversation is not None
    blocks = (json.loads(segment.data) for segment in conversation.segments)
    return [block for block in blocks if block.get("type") == "tool_result"]


def test_a_notebook_is_read_and_one_cell_of_it_changed(project: Path) -> None:
    value = analysis()
    (project / "year.ipynb").write_text(written(value))
    edit = {"notebook_path": "year.ipynb", "cell_id": "fail", "new_source": "1 / 1"}
    calls = [{"tools": [{"Read": {"file_path": "year.ipynb"}}]}, {"tools": [{"NotebookEdit": edit}]}]
    script = {"default": [*calls, {"text": "{{last_tool_result}}"}]}
    done = run(project, script, "--permission-mode", "acceptEdits")
    assert done.stdout == "replaced cell 4 (id fail), and removed the outputs of the old code, in year.ipynb\n"
    value["cells"][3] = code(["1 / 1"], id_="fail")
    assert (project / "year.ipynb").read_text() == written(value)
    shown = results(project)[0]["content"]
    assert [part["type"] for part in shown] == ["text", "image"]
    assert shown[1]["source"]["data"] == PICTURE


@pytest.mark.soak
def test_notebook_without_edit_permission_is_unchanged(project: Path) -> None:
    """A rule for Edit applies to notebooks."""
    (project / "year.ipynb").write_text(written(analysis()))
    (project / ".coterie").mkdir()
    (project / ".coterie/settings.toml").write_text('[permissions]\ndeny = ["Edit(*.ipynb)"]\n')
    edit = {"notebook_path": "year.ipynb", "cell_number": 1, "edit_mode": "delete"}
    calls = [{"tools": [{"Read": {"file_path": "year.ipynb"}}]}, {"tools": [{"NotebookEdit": edit}]}]
    done = run(project, {"default": [*calls, {"text": "{{last_tool_result}}"}]}, "--permission-mode", "acceptEdits")
    assert "Edit(*.ipynb)" in done.stdout
    assert (project / "year.ipynb").read_text() == written(analysis())


def test_pages_of_a_pdf_are_sent_counted_and_billed(project: Path) -> None:
    (project / "report.pdf").write_bytes(pdf(30))
    calls = [{"tools": [{"Read": {"file_path": "report.pdf"}}]}]
    calls += [{"tools": [{"Read": {"file_path": "report.pdf", "pages": pages}}]} for pages in ("1-3", "29-30")]
    done = run(project, {"default": [*calls, {"text": "done"}]}, "--output-format", "json")
    refused, first, second = results(project)
    assert "has 30 pages" in refused["content"][0]["text"]
    for result, pages in ((first, "pages 1-3 of 30"), (second, "pages 29-30 of 30")):
        text, shown = result["content"]
        assert pages in text["text"]
        assert (shown["type"], shown["source"]["media_type"]) == ("document", "application/pdf")
    usage = json.loads(done.stdout)["usage"]
    # The server counts 2,000 tokens per page: three pages are written to the cache and read, two are written.
    assert usage["write_5m"] + usage["write_1h"] > 5 * 2_000
    assert usage["read"] > 3 * 2_000


@pytest.mark.soak
def test_unreadable_pdf_is_reported_and_the_run_continues(project: Path) -> None:
    (project / "locked.pdf").write_bytes(encrypted("secret"))
    (project / "torn.pdf").write_bytes(pdf(3)[:120])
    calls = [{"tools": [{"Read": {"file_path": name}} for name in ("locked.pdf", "torn.pdf")]}]
    assert run(project, {"default": [*calls, {"text": "done"}]}).stdout == "done\n"
    locked, torn = (result["content"][0]["text"] for result in results(project))
    assert locked.startswith("locked.pdf is encrypted")
    assert torn.startswith("torn.pdf is damaged")
