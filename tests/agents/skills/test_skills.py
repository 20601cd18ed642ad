from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.agents.loop.conversation.token_estimate import TEXT_BYTES
from coterie.agents.skills.skill_text import requested_skill, skill_listing, skill_text
from coterie.agents.skills.store import Skill, load_skill_path, load_skills, parse_skill

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


def test_invalid_name_is_replaced_by_that_of_the_directory_or_an_error() -> None:
    for name in ("Release Notes", "release_notes", "x" * 65, ""):
        skill, problems = read(f"name: {name}", "description: b")
        assert skill is not None
        assert skill.name == "release-notes"
        assert "name of the directory is used: release-notes" in problems[0]
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


def listed(name: str, description: str = "Does it.") -> Skill:
    path = Path("/skills", name, "SKILL.md")
    return Skill(name=name, description=description, scope="user", source=path, file=path)


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("- ")]


def test_a_skill_is_a_line_with_the_beginning_of_its_description() -> None:
    assert skill_listing([], 2_000) == ""
    told = lines(skill_listing([listed("a"), listed("b", "x" * 1_000)], 2_000))
    assert told == ["- a: Does it.", f"- b: {'x' * 247}..."]


def test_descriptions_are_shortened_before_a_skill_is_omitted() -> None:
    many = [listed(f"skill-{number:03}", "words " * 40) for number in range(300)]
    told = lines(skill_listing(many[:100], 2_000))
    assert [line.endswith("...") for line in told] == [True] * 100
    told = lines(skill_listing(many, 500))
    assert told[0] == "- skill-000"
    assert told[-1].startswith(f"- ... and {300 - len(told) + 1} more")


@given(st.lists(st.text(max_size=300), max_size=60), st.integers(200, 3_000))
def test_a_listing_keeps_its_budget_and_its_frame(descriptions: list[str], budget: int) -> None:
    found = [listed(f"s{number}", " ".join(text.split())) for number, text in enumerate(descriptions)]
    text = skill_listing(found, budget)
    assert len(text.encode()) <= budget * TEXT_BYTES + 100
    assert text.count("</skills>") == bool(found)
    assert text == skill_listing(found, budget)


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("COTERIE_PROJECT_DIR", raising=False)
    (tmp_path / "project/.git").mkdir(parents=True)
    return tmp_path / "project"


def write(place: Path, name: str, body: str = "Do it.", *lines: str) -> Path:
    path = place / name / "SKILL.md"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(["---", f"name: {name}", f"description: In {place}.", *lines, "---", body]))
    return path


def test_project_skill_wins_over_the_users(project: Path, tmp_path: Path) -> None:
    for place in (tmp_path / "home/skills", *(project / d / "skills" for d in (".agents", ".claude", ".coterie"))):
        write(place, "same")
    write(tmp_path / "home/skills", "alone")
    found = load_skills(project / "deep")
    assert [(skill.name, skill.scope) for skill in found.by_name.values()] == [("same", "project"), ("alone", "user")]
    assert [problem.severity for problem in found.problems] == ["note"] * 3
    assert found.files == 5


def test_only_a_users_skill_may_be_a_link_outside(project: Path, tmp_path: Path) -> None:
    secret = write(tmp_path / "elsewhere", "secret")
    for place in (project / ".claude/skills", tmp_path / "home/skills"):
        place.mkdir(parents=True)
    (project / ".claude/skills/secret").symlink_to(secret.parent)
    found = load_skills(project)
    assert found.by_name == {}
    assert f"leads outside of the project, to {secret}" in found.problems[0].reason
    (tmp_path / "home/skills/secret").symlink_to(secret.parent)
    assert load_skills(project).by_name["secret"].directory == secret.parent


def test_file_that_became_a_link_is_not_read(project: Path, tmp_path: Path) -> None:
    path = write(project / ".claude/skills", "notes")
    used = load_skills(project).by_name["notes"].used()
    (tmp_path / "other.md").write_text("---\nname: notes\n---\nOther words.")
    path.unlink()
    path.symlink_to(tmp_path / "other.md")
    assert "has moved since" in str(skill_text(used))


def test_arguments_replace_the_placeholder_or_follow_the_text(project: Path) -> None:
    write(project / ".claude/skills", "placed", "For $ARGUMENTS, and $ARGUMENTS. In ${CLAUDE_SKILL_DIR}. $1 stays.")
    write(project / ".claude/skills", "plain", "Do it.")
    found = load_skills(project).by_name
    place = project / ".claude/skills/placed"
    assert skill_text(found["placed"].used("a b")) == f"For a b, and a b. In {place}. $1 stays."
    assert skill_text(found["plain"].used("a b")) == "Do it.\n\nArguments: a b"
    assert skill_text(found["plain"].used()) == "Do it."


def test_only_the_name_of_a_user_skill_loads_it(project: Path) -> None:
    write(project / ".claude/skills", "notes")
    write(project / ".claude/skills", "inner", "Do it.", "user-invocable: false")
    found = load_skills(project)
    asked = requested_skill("/notes  for all\nof it ", found)
    assert asked is not None
    assert (asked[0].name, asked[1]) == ("notes", "for all\nof it")
    for words in ("/note x", "notes", "/inner", "/notes/x", "/etc/hosts", "go /notes", "/"):
        assert requested_skill(words, found) is None


def test_unusual_entries_are_skipped_or_reported(project: Path) -> None:
    place = project / ".claude/skills"
    (place / "empty").mkdir(parents=True)
    (place / "README.md").write_text("No skill.")
    (place / "pipe/SKILL.md").mkdir(parents=True)
    write(place, ".hidden")
    (place / "latin").mkdir()
    (place / "latin/SKILL.md").write_bytes(b"---\nname: latin\n---\n\xe9")
    found = load_skills(project)
    assert [(problem.path.parent.name, problem.reason.partition(":")[0]) for problem in found.problems] == [
        ("latin", "not UTF-8"),
        ("pipe", "not a regular file"),
    ]


def test_a_path_is_one_skill_or_a_directory_of_them(project: Path) -> None:
    path = write(project / "some", "notes")
    for each in (path, path.parent, path.parent.parent):
        assert list(load_skill_path(each).by_name) == ["notes"]
