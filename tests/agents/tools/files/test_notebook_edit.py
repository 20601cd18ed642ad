"""Tests of NotebookEdit: one cell changes, all other bytes stay."""

import copy
import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.tools.files.notebook import Notebook
from coterie.agents.tools.files.notebook_edit import NotebookEdit
from coterie.agents.tools.tool import Workspace
from tests.agents.tools.files.notebook_files import LAYOUTS, analysis, code, notebook, prose, written
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
@pytest.mark.parametrize(("count", "after"), [(0, 0), (4, 0), (4, 1), (4, 4)])
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
        ({"cell_id": "laod", "new_source": "x"}, "no cell with the id 'laod': did you mean load"),
        ({"cell_number": 0, "new_source": "x"}, "the notebook has 4 cells, counted from 1"),
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
        ("{", "Expecting"),
        ("[]", "Expecting '{'"),
        ('{"nbformat": 3, "worksheets": []}', "nbformat is 3"),
        ('{"nbformat": 4, "cells": {}}', "no list of cells"),
        ('{"nbformat": 4, "cells": [1]}', "no list of cells"),
        (written(analysis()) + "}", "text after the end"),
        ('{"cells": ' + "[" * 200_000, "nested too deep"),
        (
            written(notebook(code(["a"], id_="x"), code(["b"], id_="x"))),
            "2 cells have the id 'x': give one cell_number of",
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
