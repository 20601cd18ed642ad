"""Queries that a store remembers."""

import stat
from pathlib import Path

import pytest

from coterie.clock import Clock
from coterie.memory.errors import MemoryRefused
from coterie.memory.recall import query_log
from coterie.memory.recall.query_log import KEPT, LONGEST, log_query, read_queries
from coterie.memory.store.change import Author
from coterie.memory.store.memory_store import MemoryStore


def test_queries_are_remembered_in_their_order_each_once(tmp_path: Path) -> None:
    for query in ("which port", "which database", "which port"):
        log_query(tmp_path, query, ["a.md"], Clock())
    assert read_queries(tmp_path) == ["which database", "which port"]
    file = tmp_path / ".history/queries.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (tmp_path / ".history/.gitignore").read_text() == "*\n"


def test_only_the_newest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_log, "KEPT", 3)
    monkeypatch.setattr(query_log, "MOST", 6)
    for number in range(20):
        log_query(tmp_path, f"query {number}", [], Clock())
        assert len((tmp_path / ".history/queries.jsonl").read_bytes().split()) > 0
    assert read_queries(tmp_path) == ["query 17", "query 18", "query 19"]
    assert (tmp_path / ".history/queries.jsonl").read_bytes().count(b"query") < 2 * 7
    assert KEPT == 200


def test_what_is_torn_is_passed_over(tmp_path: Path) -> None:
    log_query(tmp_path, "first", [], Clock())
    with (tmp_path / ".history/queries.jsonl").open("ab") as file:
        file.write(b'\n{"at":1.0,"query":"torn')
    log_query(tmp_path, "second", [], Clock())
    assert read_queries(tmp_path) == ["first", "second"]


def test_a_long_query_is_cut_and_one_with_a_secret_is_not_kept(tmp_path: Path) -> None:
    log_query(tmp_path, "word " * 1_000, [], Clock())
    log_query(tmp_path, "use sk-ant-api03-" + "Zq7" * 30, [], Clock())
    assert [len(query) for query in read_queries(tmp_path)] == [LONGEST]


def test_no_store_is_made_for_a_query(tmp_path: Path) -> None:
    log_query(tmp_path / "nowhere", "which port", [], Clock())
    assert not (tmp_path / "nowhere").exists()
    assert read_queries(tmp_path / "nowhere") == []
    assert read_queries(tmp_path) == []


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "memory/.history").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MemoryRefused):
        log_query(tmp_path / "memory", "which port", [], Clock())
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert read_queries(tmp_path / "memory") == []


def test_the_store_is_none_the_worse_for_it(tmp_path: Path) -> None:
    store = MemoryStore.at(tmp_path)
    log_query(tmp_path, "which port", [], Clock())
    store.write("a.md", b"text", Author(by="user"), base=None)
    assert store.paths() == ["a.md"]
    assert [change.path for change in store.changes() if change.path != "MEMORY.md"] == ["a.md"]
    assert read_queries(tmp_path) == ["which port"]
