"""An agent that reads notebooks and PDFs: content sent, changes made, and cost."""

import json
from typing import Any

import pytest

from tests.agents.tools.files.notebook_files import PICTURE, analysis, code, written
from tests.agents.tools.files.pdf_files import pdf
from tests.processes.project_shell import ProjectShell
from tests.processes.session_record import conversation

pytestmark = pytest.mark.slow


def results(place: ProjectShell) -> list[dict[str, Any]]:
    """Return the tool results as they were sent to the model."""
    blocks = (json.loads(segment.data) for segment in conversation(place.session).segments)
    return [block for block in blocks if block.get("type") == "tool_result"]


def test_a_notebook_is_read_and_one_cell_of_it_changed(place: ProjectShell) -> None:
    value = analysis()
    path = place.write("year.ipynb", written(value))
    edit = {"notebook_path": "year.ipynb", "cell_id": "fail", "new_source": "1 / 1"}
    calls = [{"tools": [{"Read": {"file_path": "year.ipynb"}}]}, {"tools": [{"NotebookEdit": edit}]}]
    model = place.model(json.dumps({"default": [*calls, {"text": "{{last_tool_result}}"}]}))
    done = place.coterie("run", "Look.", "-p", "--permission-mode", "acceptEdits", *model)
    changed = "replaced cell 4 (id fail), and removed the outputs of the old code, in year.ipynb\n"
    assert (done.stdout, done.stderr) == (changed, "")
    value["cells"][3] = code(["1 / 1"], id_="fail")
    assert path.read_text() == written(value)
    shown = results(place)[0]["content"]
    assert [part["type"] for part in shown] == ["text", "image"]
    assert shown[1]["source"]["data"] == PICTURE


def test_pages_of_a_pdf_are_sent_counted_and_billed(place: ProjectShell) -> None:
    (place.project / "report.pdf").write_bytes(pdf(30))
    calls = [{"tools": [{"Read": {"file_path": "report.pdf"}}]}]
    calls += [{"tools": [{"Read": {"file_path": "report.pdf", "pages": pages}}]} for pages in ("1-3", "29-30")]
    model = place.model(json.dumps({"default": [*calls, {"text": "done"}]}))
    done = place.coterie("run", "Look.", "-p", "--output-format", "json", *model)
    refused, first, second = results(place)
    assert "has 30 pages" in refused["content"][0]["text"]
    for result, pages in ((first, "pages 1-3 of 30"), (second, "pages 29-30 of 30")):
        text, shown = result["content"]
        assert pages in text["text"]
        assert (shown["type"], shown["source"]["media_type"]) == ("document", "application/pdf")
    usage = json.loads(done.stdout)["usage"]
    # The server counts 2,000 tokens per page: three pages are written to the cache and read, two are written.
    assert usage["write_5m"] + usage["write_1h"] > 5 * 2_000
    assert usage["read"] > 3 * 2_000
