"""`coterie tasks` on the task list of a session."""

import json
from functools import partial

import pytest

from coterie.session_directory import SessionDirectory
from tests.orchestrator.cli.command_runner import coterie

tasks = partial(coterie, "tasks")
pytestmark = pytest.mark.usefixtures("newest_session")


def printed(*arguments: str) -> str:
    result = tasks(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_tasks_are_created_changed_and_listed(session: SessionDirectory) -> None:
    assert printed("list") == ""
    assert printed("create", "\x1b[2JWrite it\x07", "-d", "In a.py.") == "   1  open         Write it\n"
    assert printed("create", "Test it", "--blocked-by", "1") == "   2  blocked      Test it (waits for 1)\n"
    assert printed("update", "1", "--status", "done") == "   1  done         Write it (user)\n"
    assert (
        printed("list", "--session", session.id) == "   1  done         Write it (user)\n   2  open         Test it\n"
    )
    assert printed("list", "--state", "open") == "   2  open         Test it\n"
    assert printed("list", "--owner", "user", "--state", "open") == ""
    shown = printed("show", "1").splitlines()
    assert shown[:6] == ["task 1: Write it", "state: done", "owner: user", "blocks: 2", "", "In a.py."]
    assert [line.split("  ", 1)[1] for line in shown[7:]] == ["user  created", "user  done"]


def test_json_has_every_field_of_a_task() -> None:
    made = json.loads(printed("create", "one", "--json"))
    assert {"id": 1, "subject": "one", "state": "open", "blocks": [], "owner": None}.items() <= made.items()
    changed = json.loads(printed("update", "1", "--status", "in_progress", "--json"))
    assert changed["owner"] == {"name": "user", "incarnation": 0}
    assert json.loads(printed("show", "1", "--json")) == changed
    assert json.loads(printed("list", "--json")) == [changed]
    assert [entry["what"] for entry in changed["history"]] == ["created", "claimed"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["show", "9"], "task 9"),
        (["update", "1", "--blocked-by", "2"], "1 -> 2 -> 1"),
        (["update", "2", "--status", "done"], "task 2 is blocked"),
        (["update", "1"], "nothing to change"),
        (["update", "1", "--status", "closed"], "'closed' is not one of 'open'"),
        (["create", " "], "empty"),
        (["list", "--session", "no"], "'no'"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments: list[str], reason: str) -> None:
    printed("create", "one")
    printed("create", "two", "--blocked-by", "1")
    result = tasks(*arguments)
    assert result.exit_code == 2
    assert reason in result.stderr.splitlines()[-1]


def test_a_damaged_task_file_is_reported_and_can_be_deleted(session: SessionDirectory) -> None:
    printed("create", "one")
    printed("create", "two")
    path = session.directory / "tasks" / "000001.json"
    path.write_bytes(b"{")
    listed = tasks("list", "--json")
    assert listed.exit_code == 1
    assert [task["id"] for task in json.loads(listed.stdout)] == [2]
    assert str(path) in listed.stderr
    shown = tasks("show", "1")
    assert shown.exit_code == 1
    assert "delete task 1" in shown.stderr
    printed("update", "1", "--status", "deleted")
    assert printed("list") == "   2  open         two\n"
