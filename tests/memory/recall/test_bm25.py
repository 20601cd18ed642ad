"""The local ranker with real files and a real SQLite file, including faults of both."""

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coterie.memory.recall import bm25
from coterie.memory.recall.bm25 import Bm25Ranker
from coterie.memory.recall.index_cache import INDEXED, VERSION, RefreshResult, default_cache


def write(directory: Path, name: str, body: str, description: str = "") -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    head = f"---\nname: {path.stem}\ndescription: {description}\n---\n" if description else ""
    path.write_text(f"{head}{body}\n", encoding="utf-8")
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    directory = tmp_path / "memory"
    write(directory, "ports.md", "The staging server listens on port 8417.", "where servers listen")
    write(directory, "tests.md", "Integration tests run against a real database, never a fake one.")
    write(directory, "deep/style.md", "Write getUserName, not get_user_name.")
    write(directory, "MEMORY.md", "- [ports](ports.md): zebra")
    write(directory, "logs/2026/11/2026-11-16.md", "zebra")
    write(directory, ".hidden.md", "zebra")
    write(directory, "notes.txt", "zebra")
    return directory


@pytest.fixture
def ranker(store: Path, tmp_path: Path) -> Iterator[Bm25Ranker]:
    with Bm25Ranker.open(store, tmp_path / "cache.db") as ranker:
        ranker.refresh()
        yield ranker


def paths(ranker: Bm25Ranker, query: str, k: int = 5) -> list[str]:
    return [ranked.path for ranked in ranker.rank(query, k)]


def test_memory_is_found_by_name_description_and_text_the_best_first(ranker: Bm25Ranker) -> None:
    assert paths(ranker, "ports") == ["ports.md"]
    assert paths(ranker, "where is it listening") == ["ports.md"]
    assert paths(ranker, "testing with databases") == ["tests.md"]
    assert paths(ranker, "the user name") == paths(ranker, "getUserName") == ["deep/style.md"]
    assert paths(ranker, "zebra") == [], "the index, logs and hidden files are not ranked"
    first, second = ranker.rank("the port of the database server")
    assert (first.path, second.path) == ("ports.md", "tests.md")
    assert first.score > second.score > 0


def test_refresh_reads_only_changed_files_and_sees_other_processes(
    store: Path, tmp_path: Path, ranker: Bm25Ranker
) -> None:
    assert ranker.refresh() == RefreshResult()
    write(store, "new.md", "A giraffe.")
    assert ranker.refresh() == RefreshResult(added=1)
    write(store, "new.md", "A long elephant.")
    assert ranker.refresh() == RefreshResult(changed=1)
    assert (paths(ranker, "giraffe"), paths(ranker, "elephants")) == ([], ["new.md"])
    (store / "new.md").unlink()
    with Bm25Ranker.open(store, tmp_path / "cache.db") as other:
        assert other.refresh() == RefreshResult(removed=1)
    assert paths(ranker, "elephants") == []
    assert ranker.refresh() == RefreshResult()


def test_default_cache_is_private_and_outlives_its_ranker(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    cache = default_cache(store)
    assert cache.is_relative_to(tmp_path / "xdg/coterie/recall")
    with Bm25Ranker.open(store) as ranker:
        assert ranker.refresh().added == 3
        private = (cache.parent, cache, cache.with_name(f"{cache.name}-wal"))
        assert [stat.S_IMODE(path.stat().st_mode) for path in private] == [0o700, 0o600, 0o600]
    with Bm25Ranker.open(store) as again:
        assert again.refresh() == RefreshResult()
        assert paths(again, "which port", 1) == ["ports.md"]
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_cache(store).is_relative_to(Path.home() / ".cache")


@pytest.mark.parametrize("damage", ["not a database", "another version"])
def test_unusable_cache_is_rebuilt(store: Path, tmp_path: Path, damage: str) -> None:
    if damage == "not a database":
        (tmp_path / "cache.db").write_bytes(b"no database " * 1_000)
    else:
        with sqlite3.connect(tmp_path / "cache.db") as other:
            other.execute(f"PRAGMA user_version = {VERSION + 1}")
        other.close()
    with Bm25Ranker.open(store, tmp_path / "cache.db") as ranker:
        assert ranker.refresh().added == 3
        assert paths(ranker, "ports") == ["ports.md"]
    with Bm25Ranker.open(store, tmp_path / "cache.db") as ranker:
        assert ranker.refresh() == RefreshResult()


def test_cache_damaged_during_use_is_rebuilt(store: Path, tmp_path: Path, ranker: Bm25Ranker) -> None:
    with sqlite3.connect(tmp_path / "cache.db") as other:
        other.execute("DROP TABLE spread")
    other.close()
    assert paths(ranker, "ports") == ["ports.md"]
    with sqlite3.connect(tmp_path / "cache.db") as other:
        other.execute("UPDATE texts_data SET block = x'00'")
    other.close()
    write(store, "new.md", "A giraffe.")
    ranker.refresh()
    assert paths(ranker, "giraffe") == ["new.md"]


def test_cache_is_in_memory_when_its_file_cannot_be_created(store: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "directory.db").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "target.db")
    for cache in ("file/cache.db", "directory.db", "link.db"):
        with Bm25Ranker.open(store, tmp_path / cache) as ranker:
            assert ranker.refresh().added == 3
            assert paths(ranker, "ports") == ["ports.md"]
    assert not (tmp_path / "target.db").exists()


@pytest.mark.parametrize("lock", ["IMMEDIATE", "EXCLUSIVE"])
def test_locked_cache_is_left_to_its_owner(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    """Another process writes to a cache of ours, or has a foreign database for itself."""
    monkeypatch.setattr("coterie.memory.recall.index_cache.BUSY", 0.01)
    if lock == "IMMEDIATE":
        Bm25Ranker.open(store, tmp_path / "cache.db").close()
    other = sqlite3.connect(tmp_path / "cache.db", isolation_level=None)
    other.execute("CREATE TABLE theirs (x)")
    before = other.execute("SELECT name FROM sqlite_master").fetchall()
    other.execute(f"BEGIN {lock}")
    with Bm25Ranker.open(store, tmp_path / "cache.db") as ranker:
        assert ranker.refresh().added == 3
        assert paths(ranker, "ports") == ["ports.md"]
    other.execute("ROLLBACK")
    assert other.execute("SELECT name FROM sqlite_master").fetchall() == before
    other.close()


def test_closed_ranker_raises_and_keeps_its_cache(store: Path, tmp_path: Path) -> None:
    ranker = Bm25Ranker.open(store, tmp_path / "cache.db")
    ranker.close()
    with pytest.raises(sqlite3.ProgrammingError):
        ranker.rank("ports and servers")
    assert (tmp_path / "cache.db").exists()


@pytest.mark.slow
def test_several_processes_can_index_one_store_concurrently(tmp_path: Path) -> None:
    store = tmp_path / "memory"
    for number in range(300):
        write(store, f"{number}.md", f"animal{number} giraffe")
    code = (
        "import sys; from pathlib import Path; from coterie.memory.recall.bm25 import Bm25Ranker as LocalRanker\n"
        "with LocalRanker.open(Path(sys.argv[1]), Path(sys.argv[2])) as ranker:\n"
        "    ranker.refresh(); print(*(r.path for r in ranker.rank('animal77', 3)))"
    )
    command = [sys.executable, "-P", "-c", code, str(store), str(tmp_path / "cache.db")]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [child.communicate(timeout=60)[0].split()[:1] for child in children] == [["77.md"]] * 4
    with Bm25Ranker.open(store, tmp_path / "cache.db") as ranker:
        assert ranker.refresh() == RefreshResult()
        assert len(ranker.rank("giraffe", 1_000)) == 300
    with sqlite3.connect(tmp_path / "cache.db") as cache:
        assert cache.execute("SELECT files, uses FROM spread WHERE word = 'giraff'").fetchone() == (300, 600)
    cache.close()


def test_unusable_entries_and_long_files_do_not_block_other_files(store: Path, ranker: Bm25Ranker) -> None:
    (store / "binary.md").write_bytes(bytes(range(256)) * 100)
    (store / "latin.md").write_bytes("M\xfcller and the giraffe".encode("latin-1"))
    (store / "line.md").write_bytes(b"giraffe " + b"x" * 10_000_000)
    write(store, "long.md", "giraffe " + "word " * (INDEXED // 5) + " elephant")
    (store / "broken.md").write_text("---\nname: [\n: : :\n---\ngiraffe")
    (store / "empty.md").touch()
    os.mkfifo(store / "pipe.md")
    (store / "link.md").symlink_to(store / "ports.md")
    (store / "directory.md").mkdir()
    (store / "\udcff.md").write_text("giraffe")
    (store / "closed.md").write_text("giraffe")
    (store / "closed.md").chmod(0)
    assert ranker.refresh().added == 7
    assert set(paths(ranker, "giraffe", 10)) >= {"latin.md", "line.md", "long.md", "broken.md"}
    assert paths(ranker, "elephant") == [], "the end of a very long file is not indexed"
    assert paths(ranker, "binary") == ["binary.md"]
    assert paths(ranker, "link") == []


def test_query_of_stop_words_finds_names_or_the_newest_memories(store: Path, ranker: Bm25Ranker) -> None:
    os.utime(store / "tests.md", (2_000_000_000, 2_000_000_000))
    os.utime(store / "ports.md", (1_000_000_000, 1_000_000_000))
    write(store, "band.md", "A rock band.", "The Who")
    os.utime(store / "band.md", (1_500_000_000, 1_500_000_000))
    ranker.refresh()
    assert paths(ranker, "") == paths(ranker, "?!") == ["tests.md", "deep/style.md", "band.md", "ports.md"]
    assert paths(ranker, "the who") == ["band.md"]
    assert all(ranked.score > 0 for ranked in ranker.rank(""))


SYNTAX = ['"', "port OR", "NEAR(port, 2)", "port*", "words:port", "^port", "port'); --", "\0"]


@pytest.mark.parametrize("query", [*SYNTAX, pytest.param(" ".join(map(str, range(50_000))), id="long")])
def test_query_of_any_syntax_and_length_is_plain_text(ranker: Bm25Ranker, query: str) -> None:
    assert paths(ranker, f"8417 {query}")[:1] == ["ports.md"]


def test_frequent_words_are_counted_in_the_best_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rare word selects the candidates; the frequent words then rank them, as in a full search."""
    store = tmp_path / "memory"
    for number in range(40):
        write(store, f"{number}.md", "server and giraffe" if number % 2 else "server server port")
    write(store, "best.md", "server port giraffe")
    with Bm25Ranker.open(store, tmp_path / "cache.db") as ranker:
        ranker.refresh()
        (exact,) = ranker.rank("port giraffe server", 1)
        monkeypatch.setattr(bm25, "LOOKED_AT", 50)
        (quick,) = ranker.rank("port giraffe server", 1)
        assert quick.path == exact.path == "best.md"
        assert quick.score == pytest.approx(exact.score)
    monkeypatch.setattr(bm25, "LOOKED_AT", 3)
    with Bm25Ranker.open(store, tmp_path / "cache.db") as ranker:
        assert set(paths(ranker, "server")) == {"8.md", "9.md", "best.md"}, "alone, it is looked up in the last files"


def test_interrupted_refresh_keeps_its_finished_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coterie.memory.recall.index_cache.BATCH", 2)
    store = tmp_path / "memory"
    for number in range(5):
        write(store, f"{number}.md", "giraffe")
    calls = iter([None, KeyboardInterrupt])

    def between() -> None:
        if (error := next(calls)) is not None:
            raise error

    with Bm25Ranker.open(store, tmp_path / "cache.db") as ranker:
        with pytest.raises(KeyboardInterrupt):
            ranker.refresh(between)
        assert len(ranker.rank("giraffe")) == 2
        assert ranker.refresh() == RefreshResult(added=3)
