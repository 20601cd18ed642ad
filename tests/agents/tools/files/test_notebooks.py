"""Tests of notebooks in NotebookEdit, where one cell changes and all other bytes stay, and in Read."""

import base64
import copy
import json
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.tools.files.images import MAX_IMAGE_BYTES
from coterie.agents.tools.files.notebook import Notebook
from coterie.agents.tools.files.notebook_edit import NotebookEdit
from coterie.agents.tools.files.notebook_view import MAX_IMAGES, OUTPUT_LIMIT
from coterie.agents.tools.files.read import Read
from coterie.agents.tools.tool import Image, ToolResult, Workspace
from tests.agents.tools.files.notebook_files import (
    LAYOUTS,
    PICTURE,
    analysis,
    code,
    notebook,
    png,
    prose,
    stream,
    written,
)
from tests.agents.tools.tool_calls import call, refusal, seen_file

_seen = partial(seen_file, name="a.ipynb")
_edit = partial(call, NotebookEdit(), notebook_path="a.ipynb")
_refusal = partial(refusal, NotebookEdit(), notebook_path="a.ipynb")


async def _done(workspace: Workspace, **value: Any) -> None:
    result = await _edit(workspace, **value)
    assert not result.is_error, result.text


@pytest.mark.parametrize("end", ["\n", ""])
@pytest.mark.parametrize("layout", LAYOUTS)
async def test_replaced_cell_equals_output_of_original_writer(workspace: Workspace, layout: str, end: str) -> None:
    value = analysis()
    path = await _seen(workspace, written(value, layout, end))
    result = await _edit(workspace, cell_id="load", new_source='import csv\nrows = "ä"')
    assert result.text == "replaced cell 2 (id load), and removed the outputs of the old code, in a.ipynb"
    value["cells"][1] |= {"execution_count": None, "outputs": [], "source": ["import csv\n", 'rows = "ä"']}
    assert path.read_text() == written(value, layout, end)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("count", "after"), [(0, 0), (1, 1), (4, 0), (4, 1), (4, 4)])
async def test_inserted_cell_equals_output_of_original_writer_and_can_be_deleted(
    workspace: Workspace, layout: str, count: int, after: int
) -> None:
    value = analysis()
    del value["cells"][count:]
    before = written(value, layout)
    path = await _seen(workspace, before)
    where = {"cell_number": after} if after else {}
    result = await _edit(workspace, edit_mode="insert", cell_type="code", new_source="x = 1\n", **where)
    id_ = json.loads(path.read_text())["cells"][after]["id"]
    assert result.text == f"inserted cell {after + 1} (id {id_}), code in a.ipynb"
    value["cells"].insert(after, code(["x = 1\n"], id_=id_))
    assert path.read_text() == written(value, layout)
    await _done(workspace, edit_mode="delete", **({"cell_id": id_} if after else {"cell_number": 1}))
    assert path.read_text() == before


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_cell_type_can_be_changed_and_restored(workspace: Workspace, layout: str) -> None:
    value = analysis()
    path = await _seen(workspace, written(value, layout))
    await _done(workspace, cell_id="load", new_source="words", cell_type="markdown")
    value["cells"][1] = prose(["words"], id_="load")
    assert path.read_text() == written(value, layout)
    await _done(workspace, cell_id="load", new_source="words", cell_type="code")
    value["cells"][1] = code(["words"], id_="load")
    assert path.read_text() == written(value, layout)


async def test_unusual_formatting_of_other_cells_is_kept(workspace: Workspace) -> None:
    """Escapes, numbers, key order, sources as strings and other line ends are kept."""
    odd = (
        '\ufeff{ "nbformat":4,\r\n  "nbformat_minor" : 4, "metadata":{"x": 1.50e+3, "é":"\\u00e9\\/"},\r\n'
        ' "cells":[ {"source":"a\\u0041","cell_type":"raw"  , "metadata":{ } },\r\n\r\n'
        '   {"metadata":{},"source":"old","cell_type":"code","outputs":[{"output_type":"stream"}],'
        '"execution_count":7}]}'
    )
    path = await _seen(workspace, odd)
    await _done(workspace, cell_number=2, new_source="new\nlines")
    expected = odd.replace('"old"', '"new\\nlines"').replace('[{"output_type":"stream"}]', "[]")
    assert path.read_bytes() == expected.replace(":7}", ":null}").encode()


async def test_old_notebook_gets_no_ids(workspace: Workspace) -> None:
    value = analysis(minor=4)
    path = await _seen(workspace, written(value))
    inserted = await _edit(workspace, edit_mode="insert", cell_number=1, cell_type="raw", new_source="r")
    assert inserted.text == "inserted cell 2, raw in a.ipynb"
    value["cells"].insert(1, {"cell_type": "raw", "metadata": {}, "source": ["r"]})
    assert path.read_text() == written(value)


async def test_new_ids_are_unique_and_reproducible(workspace: Workspace) -> None:
    text = written(analysis())
    ids = []
    for _ in range(2):
        path = await _seen(workspace, text)
        for _ in range(5):
            await _edit(workspace, edit_mode="insert", cell_type="code", new_source="x")
        ids.append([cell["id"] for cell in json.loads(path.read_text())["cells"]])
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == len(ids[0]) == 9


async def test_unread_version_is_not_changed(workspace: Workspace) -> None:
    path = workspace.root / "a.ipynb"
    path.write_text(written(analysis()))
    assert "has not been read yet" in await _refusal(workspace, cell_id="load", new_source="x")
    await _seen(workspace, written(analysis()))
    other = written(analysis()).replace("of the year", "of a month")
    path.write_text(other)
    assert "has changed since it was read" in await _refusal(workspace, cell_id="load", new_source="x")
    assert path.read_text() == other


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"new_source": "x"}, "give its cell_id or cell_number"),
        ({"edit_mode": "delete"}, "give its cell_id or cell_number"),
        ({"cell_id": "laod", "new_source": "x"}, "no cell with the id 'laod'; did you mean load"),
        ({"cell_number": 0, "new_source": "x"}, "the notebook has 4 cells"),
        ({"cell_number": 5, "new_source": "x"}, "there is no cell 5"),
        ({"cell_number": 1, "cell_id": "load", "new_source": "x"}, "cell 1 has the id 'intro', not 'load'"),
        ({"cell_id": "load"}, "new_source is missing"),
        ({"edit_mode": "insert", "new_source": "x"}, "cell_type is missing"),
        ({"edit_mode": "insert", "cell_type": "code"}, "new_source is missing"),
        ({"cell_id": "fail", "new_source": "1 / 0"}, "cell 4 (id fail) already has this source and type"),
        ({"cell_id": "fail", "new_source": "x", "cell_type": "sql"}, "must be one of 'code', 'markdown', 'raw'"),
        ({"notebook_path": "b.ipynb", "cell_id": "x", "new_source": "x"}, "does not exist; did you mean a.ipynb"),
        ({"notebook_path": "a.py", "cell_id": "x", "new_source": "x"}, "Change other files with Edit"),
        ({"cell_id": "fail", "new_source": "\ud800"}, "unpaired surrogate"),
    ],
)
async def test_invalid_change_is_refused_without_effect(
    workspace: Workspace, value: dict[str, Any], reason: str
) -> None:
    path = await _seen(workspace, written(analysis()))
    assert reason in await _refusal(workspace, **value)
    assert path.read_text() == written(analysis())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not valid JSON"),
        ("[]", "not valid JSON; correct it: expected '{'"),
        ('{"nbformat": 3, "worksheets": []}', "nbformat is 3"),
        ('{"nbformat": 4, "cells": {}}', "no list of cells"),
        ('{"nbformat": 4, "cells": [1]}', "no list of cells"),
        (written(analysis()) + "}", "text after the end"),
        ('{"cells": ' + "[" * 200_000, "nested too deep"),
        (
            written(notebook(code(["a"], id_="x"), code(["b"], id_="x"))),
            "2 cells have the id 'x'; give a cell_number instead",
        ),
    ],
)
async def test_invalid_or_ambiguous_notebook_is_not_changed(workspace: Workspace, text: str, reason: str) -> None:
    path = await _seen(workspace, text)
    assert reason in await _refusal(workspace, cell_id="x", new_source="y")
    assert path.read_text() == text


_SOURCES = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=40)


@given(
    sources=st.lists(_SOURCES, min_size=1, max_size=5),
    layout=st.sampled_from(sorted(LAYOUTS)),
    number=st.integers(0, 4),
    source=_SOURCES,
)
def test_any_change_affects_exactly_one_cell(sources: list[str], layout: str, number: int, source: str) -> None:
    value = notebook(*(prose(each.splitlines(keepends=True), id_=f"c{n}") for n, each in enumerate(sources)))
    text = written(value, layout)
    number %= len(sources)
    read = Notebook.read(text)
    changed = json.loads(read.replaced(read.cells[number], source))
    expected = copy.deepcopy(value)
    expected["cells"][number]["source"] = source.splitlines(keepends=True)
    assert changed == expected


async def _shown(workspace: Workspace, text: str, **value: Any) -> ToolResult:
    (workspace.root / "a.ipynb").write_bytes(text.encode())
    return await call(Read(), workspace, file_path="a.ipynb", **value)


async def test_cells_show_number_id_source_and_outputs(workspace: Workspace) -> None:
    result = await _shown(workspace, written(analysis()))
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
    assert (await _shown(workspace, written(notebook()))).text == "[a.ipynb: 0 cells, python, nbformat 4.5]"
    result = await _shown(workspace, written(analysis(minor=4)), offset=2, limit=1)
    assert "--- cell 2 code run=2 ---\nimport csv" in result.text
    assert "cell 1" not in result.text
    assert result.text.endswith("[cells 3 to 4 follow]")
    assert not result.images
    behind = await _shown(workspace, written(analysis()), offset=5)
    assert behind.is_error
    assert "has only 4 cells, so there is no cell 5" in behind.text


async def test_long_output_is_cut_but_long_source_is_not(workspace: Workspace) -> None:
    text = "x" * 100 + "\n"
    result = await _shown(workspace, written(notebook(code([text] * 60, stream([text] * 60)))))
    assert result.text.count(text) > 60
    assert f"[output cut after {OUTPUT_LIMIT:,} characters; it has 6,059]" in result.text


async def test_too_many_tokens_are_refused_with_fitting_range(workspace: Workspace) -> None:
    cells = [prose(["word " * 300 + "\n"] * 50) for _ in range(3)]
    result = await _shown(workspace, written(notebook(*cells)))
    assert result.is_error
    assert "1 cells fit: use offset=1 and limit=1" in result.text
    assert not (await _shown(workspace, written(notebook(*cells)), offset=1, limit=1)).is_error
    alone = await _shown(workspace, written(notebook(prose(["word " * 300 + "\n"] * 500))))
    assert alone.is_error
    assert "Cell 1 of a.ipynb alone has over 25,000 tokens" in alone.text


def _drawn(data: str, kind: str = "image/png") -> dict[str, Any]:
    return {"data": {kind: data}, "metadata": {}, "output_type": "display_data"}


async def test_images_are_limited_and_omitted_ones_named(workspace: Workspace) -> None:
    result = await _shown(workspace, written(notebook(code(["d"], *[_drawn(PICTURE)] * (MAX_IMAGES + 2)))))
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
    result = await _shown(workspace, written(notebook(code(["d"], _drawn(data)))))
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
    result = await _shown(workspace, written(notebook(code(["d\ud800"], *outputs)), "by four"))  # type: ignore[arg-type]  # on purpose
    assert result.text.endswith(
        "d?\n[output text/html]\n<b>hi</b>\n[output application/x-widget: not shown]\n[output empty: not shown]\n"
        "[output error]\nE: v"
    )
    assert msgspec.json.decode(result.block("t"))


@pytest.mark.parametrize("text", ['{"cells": [\n', '{"nbformat": 3}\n', "", "\ufeff"])
async def test_invalid_notebook_is_shown_as_lines(workspace: Workspace, text: str) -> None:
    result = await _shown(workspace, text)
    assert not result.is_error
    assert result.text.startswith("[not a valid notebook: ")
    if text.startswith("{"):
        assert f"     1\t{text.strip()}" in result.text
