from pathlib import Path

import pytest

from coterie.agents.skills.store import Skill, parse_skill

PATH = Path("/skills/release-notes/SKILL.md")


def read(*lines: str, body: str = "Write them.", path: Path = PATH) -> tuple[Skill | None, list[str]]:
    """Parse a skill; return it with its problems as text."""
    skill, problems = parse_skill("\n".join(["---", *lines, "---", body]), path=path, scope="project")
    return skill, [f"{problem.line} {problem.severity}: {problem.reason}" for problem in problems]


def test_all_keys_of_a_skill_are_parsed() -> None:
    skill, problems = read(
        "name: release-notes",
        "description: >\n  Writes notes.\n  Use before a release.",
        "argument-hint: [version]",
        "disable-model-invocation: yes",
        "user_invocable: false",
    )
    assert skill is not None
    assert (skill.name, skill.description) == ("release-notes", "Writes notes. Use before a release.")
    assert (skill.argument_hint, skill.is_for_model, skill.is_for_user) == ("[version]", False, False)
    assert problems == ["8 note: 'user_invocable' is interpreted as 'user-invocable'"]


def test_unused_keys_are_notes_and_allowed_tools_grant_nothing() -> None:
    skill, problems = read(
        *("name: a", "description: b", "license: MIT", "model: opus", "frobnicate: 1", "descripton: x"),
        "allowed-tools: Bash(git log:*), Read",
    )
    assert skill is not None
    assert skill.allowed_tools == ("Bash(git log:*)", "Read")
    kinds = [problem.partition(":")[0] for problem in problems]
    assert kinds == ["4 note", "5 note", "6 note", "7 warning", "8 note"]
    assert "unknown key 'frobnicate'" in problems[2]
    assert "did you mean description?" in problems[3]
    assert "grants no permissions" in problems[4]


@pytest.mark.parametrize("name", ["Release Notes", "release_notes", "x" * 65, ""])
def test_invalid_name_is_replaced_by_that_of_the_directory(name: str) -> None:
    skill, problems = read(f"name: {name}", "description: b")
    assert skill is not None
    assert skill.name == "release-notes"
    assert "name of the directory is used: release-notes" in problems[0]


def test_skill_without_a_valid_name_or_text_is_an_error() -> None:
    skill, [problem] = read("name: A B", "description: b", path=Path("/skills/A B/SKILL.md"))
    assert skill is None
    assert problem.startswith("2 error: 'A B' is not a valid name: a name is at most 64 lower-case letters")
    skill, problems = read("name: a", body="")
    assert skill is None
    assert problems[0].startswith("1 error: description is missing")
    assert parse_skill("# Just text\n", path=PATH, scope="user")[0] is None


def test_a_missing_description_is_the_first_paragraph_and_a_long_one_is_cut() -> None:
    skill, problems = read("name: a", body="# Notes\n\nWrites\nnotes.\n\nMore.")
    assert skill is not None
    assert skill.description == "Writes notes."
    assert problems[0].startswith("1 warning: description is missing")
    skill, problems = read("name: a", f"description: {'x' * 2_000}")
    assert skill is not None
    assert len(skill.description) == 1_024
    assert "2,000 characters" in problems[0]
