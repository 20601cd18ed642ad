"""Problems of memories: of one file, of the index, between memories, and with the project."""

import os
from pathlib import Path
from random import Random

import pytest

from coterie.memory.checking.file_checks import check_file, check_index
from coterie.memory.checking.issue import CheckedMemory, StoreIssue, measure_issue_rate
from coterie.memory.checking.memory_comparison import find_contradictions, find_duplicates
from coterie.memory.checking.project_references import find_missing, find_references
from coterie.memory.checking.store_check import repair_index_text
from coterie.memory.store.memory_entry import parse_entry


def memory(path: str, body: str, *, name: str = "") -> CheckedMemory:
    """Return a memory whose body begins in line 7."""
    name = name or path.removesuffix(".md")
    head = f"---\nname: {name}\ndescription: What {name} is about.\ntype: project\n---\n\n"
    return raw_memory(f"{head}{body}\n".encode(), path)


def raw_memory(content: bytes, path: str = "raw.md") -> CheckedMemory:
    """Return a memory with exactly these bytes."""
    return CheckedMemory(path=path, content=content, entry=parse_entry(content, path))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"Only text.\n", [("front_matter", None)]),
        (b"---\nname: a\ndescription: b\n---\nText.\n", [("front_matter", 1)]),
        (b"---\nname: a\ndescription: b\ntype: gossip\n---\nText.\n", [("front_matter", 1)]),
        (b"---\nname: a\ntype: user\n---\nText.\n", [("front_matter", 1)]),
        (b'---\nname: a\ndescription: "b\ntype: user\n---\nText.\n', [("front_matter", 3)]),
        (b"---\nname: a\ndescription: b\nmetadata:\n  type: user\n---\nSince 2026-01-05.\n", []),
        (b"---\nname: a\n\xff\n---\n", [("not_text", None)]),
        (b"\0\1\2", [("not_text", None)]),
    ],
)
def test_front_matter_issues_are_found(content: bytes, found: list[tuple[str, int]]) -> None:
    assert [(finding.kind, finding.line) for finding in check_file(raw_memory(content))] == found


@pytest.mark.parametrize("words", ["yesterday", "Next Thursday", "three weeks ago", "in 2 days", "last month"])
def test_relative_date_and_secret_are_found_and_the_secret_not_repeated(words: str) -> None:
    key = "AKIA" + "QYLPMN5HHHFPZAM2"
    found = list(check_file(memory("a.md", f"First.\n{words} it broke; `today` is a command.\nThe key is {key}.")))
    assert {(finding.kind, finding.line) for finding in found} == {("relative_date", 8), ("secret", 9)}
    assert not any(key in finding.reason for finding in found)


def test_index_is_compared_with_the_files() -> None:
    text = "# Memory\n- [A](a.md) — one\n- [B](b.md) — two\n- [A](a.md) — again\n- [Web](https://example.com/x.md)\n"
    found = [(finding.kind, finding.source) for finding in check_index(text, ["a.md", "c.md"])]
    assert found == [("dead_link", "MEMORY.md:3"), ("dead_link", "MEMORY.md:4"), ("orphan", "c.md")]


def test_long_line_and_long_index_are_found() -> None:
    lines = [f"- [M](m{number}.md) — hook" for number in range(201)]
    lines[3] += " and" * 50
    found = [finding.kind for finding in check_index("\n".join(lines), [f"m{number}.md" for number in range(201)])]
    assert found == ["long_line", "long_index"]


def test_repaired_index_has_no_repairable_issues_and_keeps_other_lines() -> None:
    long = f"- [A](a.md) — {'word ' * 40}"
    prose = "Prose that stands nowhere else " * 8
    text = f"\n# Memory\n\n\n{prose}\n{long}\n- [B](b.md) — gone\n- [A](a.md) — again\n"
    repaired = repair_index_text(text, {"a.md": None, "c.md": memory("c.md", "Text.", name="Sea").entry})
    assert [finding.kind for finding in check_index(repaired, ["a.md", "c.md"])] == ["long_line"]
    assert repaired.startswith(f"\n# Memory\n\n\n{prose}\n- [A](a.md) — word")
    assert repaired.endswith("\n- [Sea](c.md) — What Sea is about.\n")
    assert repaired.count("\n") == 7
    assert repair_index_text(repaired, {"a.md": None, "c.md": None}) == repaired


@pytest.mark.parametrize(
    ("paths", "name", "kinds"),
    [
        (["a.md", "b.md"], "login", ["contradiction"]),
        (["a.md", "b.md", "c.md", "d.md"], "session", ["front_matter"] * 3),
        (["x/notes.md", "y/notes.md"], "", []),
    ],
    ids=["equal name", "common name", "equal file name"],
)
def test_equal_name_with_another_body_is_an_issue(paths: list[str], name: str, kinds: list[str]) -> None:
    head = f"---\nname: {name}\n---\n" if name else ""
    memories = [raw_memory(f"{head}About {path} alone.".encode(), path) for path in paths]
    assert [finding.kind for finding in find_duplicates(memories)] == kinds


def test_duplicates_are_found_among_a_thousand_memories() -> None:
    drawn = Random(7)
    bodies = [" ".join(f"w{drawn.randrange(5_000)}" for _ in range(12)) for _ in range(1_000)]
    memories = [raw_memory(body.encode(), f"m{number:04}.md") for number, body in enumerate([*bodies, *bodies[5:7]])]
    found = [(finding.path, finding.reason) for finding in find_duplicates(memories)]
    assert found == [
        ("m1000.md", "says nearly the same as m0005.md; delete one of them"),
        ("m1001.md", "says nearly the same as m0006.md; delete one of them"),
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The staging port is 8080.", "Staging port is `9090`"),
        ("- **Test runner**: pytest", "* Test runner: unittest"),
        ("MAX_RETRIES = 3", "`MAX_RETRIES` = 5"),
        ("Always use tabs.", "Do not use tabs"),
        ("Commit to main: yes", "Commit to main: no"),
    ],
)
def test_different_values_for_one_key_are_a_contradiction(one: str, other: str) -> None:
    (finding,) = find_contradictions([memory("a.md", one), memory("b.md", f"Words.\n{other}")])
    assert (finding.source, finding.kind) == ("b.md:8", "contradiction")
    assert "a.md:7" in finding.reason


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The staging port is 8080.", "The staging port is 8080"),
        ("Port: 8080", "Port: 9090"),
        ("The user is German.", "The user is a data scientist."),
        ("**Why:** it broke", "**Why:** nobody asked"),
        ("Last updated: 2026-01-01", "Last updated: 2026-02-02"),
        ("It is 3.", "It is 4."),
    ],
)
def test_compatible_statements_are_not_a_contradiction(one: str, other: str) -> None:
    assert list(find_contradictions([memory("a.md", one), memory("b.md", other)])) == []


def test_pollution_counts_each_memory_once() -> None:
    findings = [
        StoreIssue(path="a.md", kind="duplicate", reason=""),
        *[StoreIssue(path="a.md", kind="dead_claim", reason="")] * 2,
        StoreIssue(path="b.md", kind="contradiction", reason=""),
        StoreIssue(path="c.md", kind="orphan", reason=""),
    ]
    counted = measure_issue_rate(["a.md", "b.md", "c.md", "d.md"], findings, claims=7)
    assert (counted.contradicted, counted.duplicate, counted.dead, counted.polluted) == (1, 1, 1, 2)
    assert (counted.claims, counted.dead_claims, counted.share) == (7, 2, 0.5)
    assert measure_issue_rate([], [], claims=0).share == 0


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
    (claim,) = find_references(memory("a.md", "First.\n\nThen `src/gone.py`, and `src/gone.py` again."))
    assert (claim.path, claim.line) == ("a.md", 9)


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


def test_names_that_cannot_be_looked_up_are_not_judged(project: Path, tmp_path: Path) -> None:
    found = find_missing(find_references(memory("a.md", "`feature/login`, `application/json`")), project, [])
    assert (found.claims, found.judged) == ((), 0)
    (tmp_path / "words").mkdir()
    found = find_missing(find_references(memory("a.md", "`some_symbol`, `gone.py`")), tmp_path / "words", [])
    assert ([claim.name for claim in found.claims], found.judged) == (["gone.py"], 1)
    assert found.note == "symbols in memories were not checked: no source files in the project"
