"""`coterie memory check` on a store with every kind of problem."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coterie.clock import Clock
from coterie.memory.store.memory_store import MemoryStore
from tests.orchestrator.cli.command_runner import coterie

run = partial(coterie, "memory", "check")


@pytest.fixture(autouse=True)
def project(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COTERIE_MEMORY_DIR", str(tmp_path / "memory"))
    (tmp_path / "memory").mkdir()
    (checkout / "main.py").write_text("def run_all(): ...\n")
    return checkout


@pytest.fixture
def memories(tmp_path: Path) -> Path:
    """Two memories, one with problems, and an index with a dead link and a missing entry."""
    directory = tmp_path / "memory"
    _write(directory / "good.md", "Begin with `run_all()` in `main.py`.")
    _write(directory / "stale.md", "Call `run_none()`, see `gone.py`; it broke yesterday.")
    (directory / "MEMORY.md").write_text("# Memory\n- [good](good.md) — good\n- [lost](lost.md) — lost\n")
    return directory


def _write(path: Path, body: str) -> None:
    head = f"---\nname: {path.stem}\ndescription: About {path.stem}.\ntype: project\n---\n"
    path.write_text(f"{head}\n{body}\n")


def found(*arguments: str) -> Any:
    return json.loads(run("--json", *arguments).stdout)


def test_check_of_a_clean_store_exits_0(memories: Path) -> None:
    (memories / "stale.md").unlink()
    (memories / "MEMORY.md").write_text("- [good](good.md) — good\n")
    done = run()
    assert done.exit_code == 0
    counts = "0 contradicted, 0 duplicate, 0 with dead claims; 0 of 2 claims about files and symbols are dead"
    assert done.stdout == f"pollution 0.0% of 1 memories: {counts}\nno problems\n"


def test_check_lists_problems_by_file_with_the_pollution(memories: Path) -> None:
    done = run()
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[:-2] == [
        "stale.md: orphan: is not in MEMORY.md: an agent does not know of it",
        "stale.md:7: relative date: says 'yesterday', which moves with the day it is read on; write the date",
        "stale.md:7: dead claim: names `run_none()`, which is nowhere in the project",
        "stale.md:7: dead claim: names `gone.py`, which is nowhere in the project",
        "MEMORY.md:3: dead link: links to lost.md, which does not exist",
    ]
    assert lines[-2].startswith(
        "pollution 50.0% of 2 memories: 0 contradicted, 0 duplicate, 1 with dead claims; 2 of 4"
    )
    assert lines[-1] == "5 found"


def test_fix_repairs_the_index_in_one_undoable_change(memories: Path) -> None:
    before = (memories / "MEMORY.md").read_bytes()
    answer = found("--fix")
    assert {row["kind"] for row in answer["findings"] if row["fixed"]} == {"orphan", "dead_link"}
    index = (memories / "MEMORY.md").read_text()
    assert index == "# Memory\n- [good](good.md) — good\n- [stale](stale.md) — About stale.\n"
    assert sorted(path.name for path in memories.glob("*.md")) == ["MEMORY.md", "good.md", "stale.md"]
    change = MemoryStore.at(memories, Clock()).changes()[-1]
    assert (change.id, change.author.by, change.path) == (answer["change"], "user", "MEMORY.md")
    assert {row["kind"] for row in found()["findings"]} == {"relative_date", "dead_claim"}
    assert found("--fix")["change"] is None
    assert MemoryStore.at(memories, Clock()).changes()[-1] == change
    assert coterie("memory", "undo").exit_code == 0
    assert (memories / "MEMORY.md").read_bytes() == before
