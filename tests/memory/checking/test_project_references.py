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
    """A small project with a source, a document and a directory of its own."""
    here = tmp_path / "project"
    (here / "src/app").mkdir(parents=True)
    (here / "src/app/main.py").write_text("MAX_RETRIES = 3\n\n\ndef run_all() -> None:\n    parse('--dry-run')\n")
    (here / "README.md").write_text("The function forgotten_one() was removed.\n")
    return here


def test_files_and_symbols_are_found_in_back_ticks() -> None:
    body = "See `src/app/main.py:12`, `run_all()`, `Widget.paint`, `MAX_RETRIES`, `HttpClient` and `--dry-run`."
    assert _named(body) == [
        ("file", "src/app/main.py"),
        ("symbol", "run_all"),
        ("symbol", "paint"),
        ("symbol", "MAX_RETRIES"),
        ("symbol", "HttpClient"),
        ("symbol", "--dry-run"),
    ]


def test_a_path_with_a_suffix_is_found_in_prose_too() -> None:
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
def test_what_is_no_claim_is_passed_over(body: str) -> None:
    assert _named(body) == []


def test_a_claim_knows_its_line_in_the_file() -> None:
    (claim,) = find_references(memory("a.md", "First.\n\nThen `src/gone.py`, and `src/gone.py` again."))
    assert (claim.path, claim.line) == ("a.md", 9)


def test_what_the_project_has_is_not_absent(project: Path) -> None:
    body = "`src/app/main.py`, `app/main.py`, `main.py`, `src/app/`, `run_all()`, `MAX_RETRIES`, `--dry-run`"
    assert _absent(project, body) == []


def test_what_the_project_has_not_is_absent(project: Path) -> None:
    body = "`src/app/gone.py`, `legacy/`, `src/other`, `run_al()`, `MAX_RETRY`, `--dry`"
    assert _absent(project, body) == ["src/app/gone.py", "legacy/", "src/other", "run_al", "MAX_RETRY", "--dry"]


def test_a_symbol_in_prose_is_no_longer_in_the_code(project: Path) -> None:
    assert _absent(project, "`forgotten_one()`") == ["forgotten_one"]


def test_a_name_with_slashes_that_is_no_place_in_the_project_is_not_judged(project: Path) -> None:
    found = find_missing(find_references(memory("a.md", "`feature/login`, `application/json`")), project, [])
    assert (found.claims, found.judged) == ((), 0)


def test_memories_may_name_each_other_but_do_not_prove_a_symbol(project: Path) -> None:
    store = project / "kept"
    store.mkdir()
    (store / "other.md").write_text("")
    (store / "proof.py").write_text("vanished_symbol = 1")
    assert _absent(project, "`other.md`, `vanished_symbol`", store) == ["vanished_symbol"]


def test_symbols_are_not_judged_where_there_are_no_sources(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("Words.")
    found = find_missing(find_references(memory("a.md", "`some_symbol`, `gone.py`")), tmp_path, [])
    assert [claim.name for claim in found.claims] == ["gone.py"]
    assert found.judged == 1
    assert found.note == "symbols were not looked for: the project has no sources"


def test_pipes_links_and_binaries_in_the_project_do_no_harm(project: Path) -> None:
    os.mkfifo(project / "pipe.py")
    (project / "loop.py").symlink_to("loop.py")
    (project / "data.bin").write_bytes(b"\0 hidden_symbol")
    assert _absent(project, "`hidden_symbol`, `run_all()`") == ["hidden_symbol"]
