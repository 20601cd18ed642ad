import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coterie.orchestrator.cli.main import main


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory: a checkout with two skills, one of them broken."""
    monkeypatch.setenv("COTERIE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("COTERIE_PROJECT_DIR", raising=False)
    here = tmp_path / "project"
    (here / ".git").mkdir(parents=True)
    write(here / ".claude/skills/notes", "name: notes", 'description: "Writes\\e[2J notes."', "allowed-tools: Write")
    (here / ".claude/skills/broken").mkdir()
    (here / ".claude/skills/broken/SKILL.md").write_text("Nothing.")
    write(tmp_path / "home/skills/review", "name: review", "description: Reviews.", "user-invocable: false")
    monkeypatch.chdir(here)
    return here


def write(directory: Path, *lines: str) -> None:
    directory.mkdir(parents=True)
    (directory / "SKILL.md").write_text("\n".join(["---", *lines, "---", "For $ARGUMENTS.", ""]))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_list_shows_a_line_for_each_skill_below_its_place(tmp_path: Path) -> None:
    done = run("skills", "list")
    assert done.stdout.splitlines() == [
        "claude  .claude/skills",
        "  notes   Writes\ufffd[2J notes.",
        f"user  {tmp_path}/home/skills",
        "  review  Reviews.",
    ]
    assert done.stderr == "1 error: run `coterie skills check`\n"


def test_show_says_what_it_would_like_and_where_to_allow_that() -> None:
    done = run("skills", "show", "notes")
    assert "started by: agents and you" in done.output
    assert 'would like to use: "Write"; to let it, add them to `permissions.allow`' in done.output
    assert done.output.endswith("\n\nFor $ARGUMENTS.\n")
    assert json.loads(run("skills", "show", "review", "--json").output)["text"] == "For $ARGUMENTS."


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    done = run("skills", "show", "note")
    assert done.exit_code == 2
    assert "unknown skill 'note'; did you mean notes?" in done.output


def test_check_tells_file_line_and_reason_and_fails_for_an_error() -> None:
    done = run("skills", "check")
    assert done.exit_code == 1
    assert ".claude/skills/broken/SKILL.md:1: error: no front matter" in done.output
    assert done.output.splitlines()[-1] == "3 files, 2 skills: 1 error, 0 warnings, 1 note"
    told = json.loads(run("skills", "check", ".claude/skills/notes", "--json").output)
    assert [problem["severity"] for problem in told["problems"]] == ["note"]


def test_check_refuses_a_path_that_is_not_there() -> None:
    done = run("skills", "check", "nowhere")
    assert done.exit_code == 2
    assert "nowhere: No such file or directory; give a SKILL.md" in done.output


def test_the_doctor_finds_a_broken_skill() -> None:
    [finding] = [each for each in json.loads(run("doctor", "--json").output)["findings"] if each["kind"] == "bad_skill"]
    assert finding["where"].endswith("broken/SKILL.md:1")


def test_what_an_agent_begins_with_counts_the_list_of_skills(project: Path) -> None:
    (project / ".claude/agents").mkdir()
    head = "---\nname: editor\ndescription: Edits.\ntools: Read\nskills: [notes]\n---\nEdit."
    (project / ".claude/agents/editor.md").write_text(head)
    parts = json.loads(run("memory", "instructions", "--json").output)["loaded"]
    assert [part["why"] for part in parts if part["what"] == "skills"] == ["2 skills that it can load"]
    parts = json.loads(run("memory", "instructions", "--agent", "editor", "--json").output)["loaded"]
    assert [part["what"] for part in parts if part["what"].startswith("skill")] == ["skill"]


def test_names_are_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_COTERIE_COMPLETE", "bash_complete")
    for words, offered in (("coterie skills show n", "notes"), ("coterie run /", "/notes")):
        environment = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        done = CliRunner().invoke(main, env=environment, prog_name="coterie")
        assert [line.partition(",")[2] for line in done.output.splitlines()] == [offered]
