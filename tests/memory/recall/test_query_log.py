"""The query log of a store."""

import stat
from pathlib import Path

import pytest

from coterie.clock import Clock
from coterie.memory.errors import MemoryRefused
from coterie.memory.recall import query_log
from coterie.memory.recall.query_log import LONGEST, log_query, read_queries


def test_queries_are_logged_in_order_without_duplicates_and_torn_records(tmp_path: Path) -> None:
    file = tmp_path / ".history/queries.jsonl"
    for query in ("which port", "which database", "which port"):
        log_query(tmp_path, query, ["a.md"], Clock())
    with file.open("ab") as torn:
        torn.write(b'\n{"at":1.0,"query":"torn')
    log_query(tmp_path, "which table", [], Clock())
    assert read_queries(tmp_path) == ["which database", "which port", "which table"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (tmp_path / ".history/.gitignore").read_text() == "*\n"


def test_query_log_keeps_only_the_newest_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_log, "KEPT", 3)
    monkeypatch.setattr(query_log, "MOST", 6)
    for number in range(20):
        log_query(tmp_path, f"query {number}", [], Clock())
    assert read_queries(tmp_path) == ["query 17", "query 18", "query 19"]
    assert (tmp_path / ".history/queries.jsonl").read_bytes().count(b"query") < 2 * 7


def test_long_query_is_cut_and_query_with_secret_is_not_logged(tmp_path: Path) -> None:
    log_query(tmp_path, "word " * 1_000, [], Clock())
    log_query(tmp_path, "use sk-ant-api03-" + "Zq7" * 30, [], Clock())
    assert [len(query) for query in read_queries(tmp_path)] == [LONGEST]


def test_query_log_is_not_written_through_a_link_or_without_a_store(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "memory/.history").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MemoryRefused):
        log_query(tmp_path / "memory", "which port", [], Clock())
    assert not list((tmp_path / "elsewhere").iterdir())
    log_query(tmp_path / "nowhere", "which port", [], Clock())
    assert not (tmp_path / "nowhere").exists()
    assert read_queries(tmp_path / "memory") == read_queries(tmp_path / "nowhere") == []
