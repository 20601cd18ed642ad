import os
from pathlib import Path

import pytest

from coterie.memory.checking.project_references import find_missing, find_references
from tests.memory.checking.memory_samples import memory


def _named(body: str) -> list[tuple[str, str]]:
    return [(claim.kind, claim.name) for claim in find_references(memory("a.md", body))]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with a source file, a document and a subdirectory."""
    here = tmp_path / "project"
    (here / "src/app").mkdir(parents=True)
    (here / "src/app/main.py").write_text("MAX_RETRIES = 3\n\n\ndef run_all() -> None:\n    parse('--dry-run')\n")
    (here / "README.md").write_text("The function forgotten_one() was removed.\n")
    return here


def test_files_and_symbols_are_found_in_code_spans_and_files_in_prose() -> None:
    body = "See `src/app/main.py:12`, `run_all()`, `Widget.paint`, `MAX_RETRIES`, `HttpClient` and `--dry-run`."
    symbols = ("run_all", "paint", "MAX_RETRIES", "HttpClient", "--dry-run")
    assert _named(body) == [("file", "src/app/main.py"), *(("symbol", name) for name in symbols)]
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


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        ("`src/app/main.py`, `app/main.py`, `main.py`, `src/app/`, `run_all()`, `MAX_RETRIES`, `--dry-run`", ""),
        (
            "`src/app/gone.py`, `legacy/`, `src/other`, `run_al()`, `MAX_RETRY`, `--dry`",
            "src/app/gone.py legacy/ src/other run_al MAX_RETRY --dry",
        ),
        ("`forgotten_one()`", "forgotten_one"),
        ("`hidden_symbol`, `run_all()`", "hidden_symbol"),
        ("`other.md`, `vanished_symbol`", "vanished_symbol"),
    ],
    ids=["known", "unknown", "only in prose", "only in a binary", "memory names count as paths, not as symbols"],
)
def test_unknown_files_and_symbols_are_missing(project: Path, body: str, missing: str) -> None:
    store = project / "kept"
    store.mkdir()
    (store / "other.md").write_text("")
    (store / "proof.py").write_text("vanished_symbol = 1")
    os.mkfifo(project / "pipe.py")
    (project / "loop.py").symlink_to("loop.py")
    (project / "data.bin").write_bytes(b"\0 hidden_symbol")
    found = find_missing(find_references(memory("a.md", body)), project, [store])
    assert [claim.name for claim in found.claims] == missing.split()


def test_name_with_slashes_outside_the_tree_is_not_judged(project: Path) -> None:
    found = find_missing(find_references(memory("a.md", "`feature/login`, `application/json`")), project, [])
    assert (found.claims, found.judged) == ((), 0)


def test_symbols_are_not_judged_without_sources(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("Words.")
    found = find_missing(find_references(memory("a.md", "`some_symbol`, `gone.py`")), tmp_path, [])
    assert [claim.name for claim in found.claims] == ["gone.py"]
    assert found.judged == 1
    assert found.note == "symbols were not looked for: the project has no sources"
