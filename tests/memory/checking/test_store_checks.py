from random import Random

import pytest

from coterie.memory.checking.file_checks import check_file, check_index
from coterie.memory.checking.issue import StoreIssue, measure_issue_rate
from coterie.memory.checking.memory_comparison import find_contradictions, find_duplicates
from coterie.memory.checking.store_check import repair_index_text
from tests.memory.checking.memory_samples import memory, raw_memory

SENTENCE = "The nightly build runs on the small machine because the large one is rented out after six in the evening."


def _found(content: str | bytes) -> list[tuple[str, int | None]]:
    bytes_ = content if isinstance(content, bytes) else content.encode()
    return [(finding.kind, finding.line) for finding in check_file(raw_memory(bytes_))]


def test_valid_memory_has_no_issues() -> None:
    assert list(check_file(memory("a.md", "Since 2026-01-05 the build runs at night."))) == []


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("Only text.\n", [("front_matter", None)]),
        ("---\nname: a\ndescription: b\n---\nText.\n", [("front_matter", 1)]),
        ("---\nname: a\ndescription: b\ntype: gossip\n---\nText.\n", [("front_matter", 1)]),
        ("---\nname: a\ntype: user\n---\nText.\n", [("front_matter", 1)]),
        ("---\nname: a\ndescription: b\nmetadata:\n  type: user\n---\nText.\n", []),
        (b"---\nname: a\n\xff\n---\n", [("not_text", None)]),
        (b"\0\1\2", [("not_text", None)]),
    ],
)
def test_front_matter_issues_are_found(content: str | bytes, found: list[tuple[str, int]]) -> None:
    assert _found(content) == found


def test_invalid_yaml_is_reported_with_its_line() -> None:
    text = '---\nname: a\ndescription: "b\ntype: user\n---\nText.\n'
    assert {kind for kind, _ in _found(text)} == {"front_matter"}


@pytest.mark.parametrize("words", ["yesterday", "Next Thursday", "three weeks ago", "in 2 days", "last month"])
def test_relative_date_is_found(words: str) -> None:
    (finding,) = check_file(memory("a.md", f"First.\n{words} it broke; `today` is a command."))
    assert (finding.kind, finding.line) == ("relative_date", 8)


def test_secret_is_found_and_not_repeated() -> None:
    key = "AKIA" + "QYLPMN5HHHFPZAM2"
    (finding,) = check_file(memory("a.md", f"The key is {key}."))
    assert (finding.kind, finding.line) == ("secret", 7)
    assert key not in finding.reason


def test_index_is_compared_with_the_files() -> None:
    text = "# Memory\n- [A](a.md) — one\n- [B](b.md) — two\n- [A](a.md) — again\n- [Web](https://example.com/x.md)\n"
    found = [(finding.kind, finding.source) for finding in check_index(text, ["a.md", "c.md"])]
    assert found == [("dead_link", "MEMORY.md:3"), ("dead_link", "MEMORY.md:4"), ("orphan", "c.md")]


def test_long_line_and_long_index_are_found() -> None:
    lines = [f"- [M](m{number}.md) — hook" for number in range(201)]
    lines[3] += " and" * 50
    found = [finding.kind for finding in check_index("\n".join(lines), [f"m{number}.md" for number in range(201)])]
    assert found == ["long_line", "long_index"]


def test_repaired_index_has_no_repairable_issues() -> None:
    long = f"- [A](a.md) — {'word ' * 40}"
    prose = "Prose that stands nowhere else " * 8
    text = f"# Memory\n{prose}\n{long}\n- [B](b.md) — gone\n- [A](a.md) — again\n"
    topic = memory("c.md", "Text.", name="Sea").entry
    mended = repair_index_text(text, {"a.md": None, "c.md": topic})
    assert [finding.kind for finding in check_index(mended, ["a.md", "c.md"])] == ["long_line"]
    lines = mended.split("\n")
    assert lines[:2] == ["# Memory", prose]
    assert lines[2].startswith("- [A](a.md) — word")
    assert lines[3:] == ["- [Sea](c.md) — What Sea is about.", ""]


def test_correct_index_keeps_its_bytes() -> None:
    text = "\n# Memory\n\n\n* [A](./a.md): one\n\n"
    assert repair_index_text(text, {"a.md": None}) == text


def test_almost_equal_body_is_a_duplicate() -> None:
    memories = [
        memory("a.md", SENTENCE * 3),
        memory("b.md", "Something else altogether, about another part of the project and its people."),
        memory("c.md", SENTENCE * 3 + " Ask Kim."),
    ]
    found = [(finding.path, finding.kind) for finding in find_duplicates(memories)]
    assert found == [("c.md", "duplicate")]


def test_equal_name_with_another_body_is_a_contradiction() -> None:
    one, two = memory("a.md", "Use the first.", name="Login"), memory("b.md", "Take the other one.", name="login")
    assert [(finding.path, finding.kind) for finding in find_duplicates([one, two])] == [("b.md", "contradiction")]


def test_common_name_is_not_a_contradiction() -> None:
    memories = [
        memory(f"{word}.md", f"About {word} alone.", name="session") for word in ("one", "two", "three", "four")
    ]
    assert [finding.kind for finding in find_duplicates(memories)] == ["front_matter"] * 3


def test_equal_file_names_in_two_directories_do_not_contradict() -> None:
    one, two = raw_memory(b"Use the first.", "x/notes.md"), raw_memory(b"Take the other one.", "y/notes.md")
    assert list(find_duplicates([one, two])) == []


def test_duplicates_are_found_among_a_thousand_memories() -> None:
    drawn = Random(7)
    bodies = [" ".join(f"w{drawn.randrange(5_000)}" for _ in range(12)) for _ in range(1_000)]
    memories = [raw_memory(body.encode(), f"m{number:04}.md") for number, body in enumerate([*bodies, *bodies[5:7]])]
    found = [(finding.path, finding.reason) for finding in find_duplicates(memories)]
    assert found == [
        ("m1000.md", "says nearly the same as m0005.md; keep one"),
        ("m1001.md", "says nearly the same as m0006.md; keep one"),
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
        StoreIssue(path="a.md", kind="dead_claim", reason=""),
        StoreIssue(path="a.md", kind="dead_claim", reason=""),
        StoreIssue(path="b.md", kind="contradiction", reason=""),
        StoreIssue(path="c.md", kind="orphan", reason=""),
    ]
    counted = measure_issue_rate(["a.md", "b.md", "c.md", "d.md"], findings, claims=7)
    assert (counted.contradicted, counted.duplicate, counted.dead, counted.polluted) == (1, 1, 1, 2)
    assert (counted.claims, counted.dead_claims, counted.share) == (7, 2, 0.5)
    assert measure_issue_rate([], [], claims=0).share == 0
