import os
from pathlib import Path

import pytest

from coterie.memory.checking.project_references import find_missing, find_references
from tests.memory.checking.memory_samples import memory


def _named(body: str) -> list[tuple[str, str]]:
    return [(claim.kind, claim.name) for claim in find_references(memory("a.md", body))]


def _absent(project: Path, body: str, *stores: Path) -> list[str]:
    return [claim.name for claim in find_missing(find_references(memory("a.md", body)), project, stores).claims]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with a source file, a document and a subdirectory."""
    here = tmp_path / "project"
    (here / "src/app").mkdir(parents=True)
    (here / "src/app/main.py").write_text("MAX_RETRIES = 3\n\n\ndef run_all() -> None:\n    parse('--dry-run')\n")
    (here / "README.md").write_text("The function forgotten_one() was removed.\n")
    return here


def test_files_and_symbols_are_found_in_code_spans() -> None:
    body = "See `src/app/main.py:12`, `run_all()`, `Widget.paint`, `MAX_RETRIES`, `HttpClient` and `--dry-run`."
    assert _named(body) == [
        ("file", "src/app/main.py"),
        ("symbol", "run_all"),
        ("symbol", "paint"),
        ("symbol", "MAX_RETRIES"),
        ("symbol", "HttpClient"),
        ("symbol", "--dry-run"),
    ]


def test_path_with_suffix_is_found_in_prose() -> None:
    assert _named("It is in ./src/app/main.py. It costs and/or gains nothing.") == [("file", "src/app/main.py")]


@pytest.mark.parametrize(
    "body",
    [
        "`main` and `true` and `black` are words",
        "`git commit --no-verify` is a command",
        "`https://example.com/a.py` and https://example.com/b/c.py are addresses",
        "`src/**/*.py`, `<name>/x.py`, `$HOME/x.py`, `~/x.py` and `../x.py` are elsewhere or many",
        "`node.js` and `Node.js` are no files",
        "```\nsrc/gone.py\n`gone_too()`\n```",
    ],
)
def test_other_text_is_not_a_reference(body: str) -> None:
    assert _named(body) == []


def test_reference_has_its_line_in_the_file() -> None:
    (claim,) = find_references(memory("a.md", "First.\n\nThen `src/gone.py`, and `src/gone.py` again."))
    assert (claim.path, claim.line) == ("a.md", 9)


def test_existing_file_or_symbol_is_not_missing(project: Path) -> None:
    body = "`src/app/main.py`, `app/main.py`, `main.py`, `src/app/`, `run_all()`, `MAX_RETRIES`, `--dry-run`"
    assert _absent(project, body) == []


def test_unknown_file_or_symbol_is_missing(project: Path) -> None:
    body = "`src/app/gone.py`, `legacy/`, `src/other`, `run_al()`, `MAX_RETRY`, `--dry`"
    assert _absent(project, body) == ["src/app/gone.py", "legacy/", "src/other", "run_al", "MAX_RETRY", "--dry"]


def test_symbol_that_occurs_only_in_prose_is_missing(project: Path) -> None:
    assert _absent(project, "`forgotten_one()`") == ["forgotten_one"]


def test_name_with_slashes_outside_the_tree_is_not_judged(project: Path) -> None:
    found = find_missing(find_references(memory("a.md", "`feature/login`, `application/json`")), project, [])
    assert (found.claims, found.judged) == ((), 0)


def test_memory_names_count_as_paths_but_not_as_symbols(project: Path) -> None:
    store = project / "kept"
    store.mkdir()
    (store / "other.md").write_text("")
    (store / "proof.py").write_text("vanished_symbol = 1")
    assert _absent(project, "`other.md`, `vanished_symbol`", store) == ["vanished_symbol"]


def test_symbols_are_not_judged_without_sources(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("Words.")
    found = find_missing(find_references(memory("a.md", "`some_symbol`, `gone.py`")), tmp_path, [])
    assert [claim.name for claim in found.claims] == ["gone.py"]
    assert found.judged == 1
    assert found.note == "symbols were not looked for: the project has no sources"


def test_pipes_links_and_binaries_in_the_project_are_skipped(project: Path) -> None:
    os.mkfifo(project / "pipe.py")
    (project / "loop.py").symlink_to("loop.py")
    (project / "data.bin").write_bytes(b"\0 hidden_symbol")
    assert _absent(project, "`hidden_symbol`, `run_all()`") == ["hidden_symbol"]
