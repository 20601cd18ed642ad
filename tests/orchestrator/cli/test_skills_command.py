import json
from pathlib import Path

import pytest

from tests.orchestrator.cli.command_runner import coterie, printed


@pytest.fixture(autouse=True)
def project(checkout: Path, home: Path) -> Path:
    write(
        checkout / ".claude/skills/notes", "name: notes", 'description: "Writes\\e[2J notes."', "allowed-tools: Write"
    )
    (checkout / ".claude/skills/broken").mkdir()
    (checkout / ".claude/skills/broken/SKILL.md").write_text("Nothing.")
    write(home / "skills/review", "name: review", "description: Reviews.", "user-invocable: false")
    return checkout


def write(directory: Path, *lines: str) -> None:
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text("\n".join(["---", *lines, "---", "For $ARGUMENTS.", ""]))


def test_list_groups_skills_by_directory(tmp_path: Path) -> None:
    done = coterie("skills", "list")
    assert done.stdout.splitlines() == [
        "claude  .claude/skills",
        "  notes   Writes\ufffd[2J notes.",
        f"user  {tmp_path}/home/skills",
        "  review  Reviews.",
    ]
    assert "`coterie skills check`" in done.stderr


def test_show_has_starters_and_permissions_and_suggests_the_closest_name() -> None:
    done = coterie("skills", "show", "notes")
    assert ": agents and you\n" in done.output
    assert '"Write"' in done.output
    assert done.output.endswith("\n\nFor $ARGUMENTS.\n")
    assert printed("skills", "show", "review")["text"] == "For $ARGUMENTS."
    done = coterie("skills", "show", "note")
    assert (done.exit_code, "did you mean notes?" in done.output) == (2, True)


def test_check_exits_1_for_a_broken_skill_and_the_doctor_reports_it() -> None:
    done = coterie("skills", "check")
    assert done.exit_code == 1
    assert ".claude/skills/broken/SKILL.md:1: error: " in done.output
    assert done.output.splitlines()[-1] == "3 files, 2 skills: 1 error, 0 warnings, 1 note"
    told = json.loads(coterie("skills", "check", ".claude/skills/notes", "--json").output)
    assert [problem["severity"] for problem in told["problems"]] == ["note"]
    findings = json.loads(coterie("doctor", "--json").output)["findings"]
    [finding] = [each for each in findings if each["kind"] == "bad_skill"]
    assert finding["where"].endswith("broken/SKILL.md:1")


def test_instructions_include_the_list_of_skills(project: Path) -> None:
    (project / ".claude/agents").mkdir()
    head = "---\nname: editor\ndescription: Edits.\ntools: Read\nskills: [notes]\n---\nEdit."
    (project / ".claude/agents/editor.md").write_text(head)
    parts = printed("memory", "instructions")["loaded"]
    assert [part["why"][:8] for part in parts if part["what"] == "skills"] == ["2 skills"]
    parts = printed("memory", "instructions", "--agent", "editor")["loaded"]
    assert [part["what"] for part in parts if part["what"].startswith("skill")] == ["skill"]
