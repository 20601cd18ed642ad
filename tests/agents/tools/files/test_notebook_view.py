"""Tests of notebooks in Read: cells, outputs and limits."""

import base64
from typing import Any

import msgspec
import pytest

from coterie.agents.tools.files.images import MAX_IMAGE_BYTES
from coterie.agents.tools.files.notebook_view import MAX_IMAGES, OUTPUT_LIMIT
from coterie.agents.tools.files.read import Read
from coterie.agents.tools.tool import Image, ToolResult, Workspace
from tests.agents.tools.files.notebook_files import PICTURE, analysis, code, notebook, png, prose, stream, written
from tests.agents.tools.tool_calls import call


async def _read(workspace: Workspace, text: str, **value: Any) -> ToolResult:
    (workspace.root / "a.ipynb").write_bytes(text.encode())
    return await call(Read(), workspace, file_path="a.ipynb", **value)


async def test_cells_show_number_id_source_and_outputs(workspace: Workspace) -> None:
    result = await _read(workspace, written(analysis()))
    assert result == ToolResult(
        text="[a.ipynb: 4 cells, python, nbformat 4.5]\n"
        "--- cell 1 id=intro markdown ---\n# Übersicht\nof the year\n"
        "--- cell 2 id=load code run=2 ---\nimport csv\nrows = 3\nrows\n"
        "[output stdout]\nread\n3 rows\n[output text/plain]\n42\n"
        "--- cell 3 id=plot code run=3 ---\nplot(rows)\n[output image/png: image 1, 4 x 3 pixels]\n"
        "--- cell 4 id=fail code run=4 ---\n1 / 0\n[output error]\nZeroDivisionError\ndivision by zero",
        images=(Image(media_type="image/png", data=PICTURE),),
    )


async def test_range_counts_cells(workspace: Workspace) -> None:
    assert (await _read(workspace, written(notebook()))).text == "[a.ipynb: 0 cells, python, nbformat 4.5]"
    result = await _read(workspace, written(analysis(minor=4)), offset=2, limit=1)
    assert "--- cell 2 code run=2 ---\nimport csv" in result.text
    assert "cell 1" not in result.text
    assert result.text.endswith("[cells 3 to 4 follow]")
    assert not result.images
    behind = await _read(workspace, written(analysis()), offset=5)
    assert behind.is_error
    assert "has only 4 cells, so there is no cell 5" in behind.text


async def test_long_output_is_cut_but_long_source_is_not(workspace: Workspace) -> None:
    text = "x" * 100 + "\n"
    result = await _read(workspace, written(notebook(code([text] * 60, stream([text] * 60)))))
    assert result.text.count(text) > 60
    assert f"[output cut after {OUTPUT_LIMIT:,} characters; it has 6,059]" in result.text


async def test_too_many_tokens_are_refused_with_fitting_range(workspace: Workspace) -> None:
    cells = [prose(["word " * 300 + "\n"] * 50) for _ in range(3)]
    result = await _read(workspace, written(notebook(*cells)))
    assert result.is_error
    assert "1 cells fit: use offset=1 and limit=1" in result.text
    assert not (await _read(workspace, written(notebook(*cells)), offset=1, limit=1)).is_error
    alone = await _read(workspace, written(notebook(prose(["word " * 300 + "\n"] * 500))))
    assert alone.is_error
    assert "Cell 1 of a.ipynb alone has over 25,000 tokens" in alone.text


def _drawn(data: str, kind: str = "image/png") -> dict[str, Any]:
    return {"data": {kind: data}, "metadata": {}, "output_type": "display_data"}


async def test_images_are_limited_and_omitted_ones_named(workspace: Workspace) -> None:
    result = await _read(workspace, written(notebook(code(["d"], *[_drawn(PICTURE)] * (MAX_IMAGES + 2)))))
    assert len(result.images) == MAX_IMAGES
    assert result.text.count("not shown, there are too many") == 2


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("%%%", "it is damaged"),
        ("abc", "not base64"),
        (base64.b64encode(png()[:40]).decode(), "its end is missing"),
        (base64.b64encode(png(8_001, 1)).decode(), "8,001 x 1 pixels"),
        (base64.b64encode(png() + b"\0" * MAX_IMAGE_BYTES).decode(), "over the limit of 3.75 MB"),
    ],
)
async def test_image_that_api_rejects_is_not_sent(workspace: Workspace, data: str, reason: str) -> None:
    result = await _read(workspace, written(notebook(code(["d"], _drawn(data)))))
    assert not result.is_error
    assert not result.images
    assert reason in result.text


async def test_other_outputs_and_half_a_character_are_shown_as_text(workspace: Workspace) -> None:
    outputs = [
        {"data": {"text/html": ["<b>hi</b>"]}, "output_type": "display_data"},
        {"data": {"application/x-widget": {}}, "output_type": "display_data"},
        {"output_type": "display_data"},
        {"output_type": "error", "ename": "E", "evalue": "v", "traceback": []},
        "no output",
    ]
    result = await _read(workspace, written(notebook(code(["d\ud800"], *outputs)), "by four"))  # type: ignore[arg-type]  # on purpose
    assert result.text.endswith(
        "d?\n[output text/html]\n<b>hi</b>\n[output application/x-widget: not shown]\n[output empty: not shown]\n"
        "[output error]\nE: v"
    )
    assert msgspec.json.decode(result.block("t"))


@pytest.mark.parametrize("text", ['{"cells": [\n', '{"nbformat": 3}\n', "", "\ufeff"])
async def test_invalid_notebook_is_shown_as_lines(workspace: Workspace, text: str) -> None:
    result = await _read(workspace, text)
    assert not result.is_error
    assert result.text.startswith("[not a valid notebook: ")
    if text.startswith("{"):
        assert f"     1\t{text.strip()}" in result.text
