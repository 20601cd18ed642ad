from pathlib import Path

import pytest

from coterie.agents.skills.skill_text import requested_skill, skill_text
from coterie.agents.skills.store import load_skill_path, load_skills


@pytest.fixture
def project(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout and a home directory without skills."""
    monkeypatch.delenv("COTERIE_PROJECT_DIR", raising=False)
    (tmp_path / "project/.git").mkdir(parents=True)
    return tmp_path / "project"


def write(place: Path, name: str, body: str = "Do it.", *lines: str) -> Path:
    """Write a skill with the name *name*."""
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
