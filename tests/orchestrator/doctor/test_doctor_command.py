"""Tests of `coterie doctor` over files damaged by crashes, disks and users."""

import json
import os
import socket
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from filelock import FileLock, Timeout

from coterie.clock import Clock
from coterie.files import file_faults
from coterie.mailbox.tasks.task import USER
from coterie.mailbox.tasks.task_list import TaskList
from coterie.mailbox.transports.bridge.socket_path import socket_path
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.approvals.store import Approval, ApprovalKey, ApprovalStore
from coterie.orchestrator.doctor import crash_cleanup
from coterie.orchestrator.doctor.session_checks import mark_ended
from coterie.orchestrator.gateway.ledger import LEDGER, Ledger
from coterie.orchestrator.session.root_lock import ROOT_RECORD, open_root_record
from coterie.session_directory import SessionDirectory
from tests.orchestrator.approvals.approval_harness import plan
from tests.orchestrator.cli.command_runner import coterie
from tests.orchestrator.gateway.test_ledger import line
from tests.orchestrator.mail_writer import MailWriter
from tests.orchestrator.session_writer import FINISHED, STARTED, open_writer, set_states
from tests.seeded_faults import SeededFaults

doctor = partial(coterie, "doctor")


@pytest.fixture(autouse=True)
def session(
    session: SessionDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: Path
) -> SessionDirectory:
    """A cleanly ended session with one of each type of record."""
    monkeypatch.chdir(tmp_path)
    with open_writer(session.directory) as agent:
        agent.write_event(STARTED)
        agent.write_text("user", "the task")
        agent.write_text("assistant", "done")
        agent.write_event(FINISHED)
    with Ledger.open(session.directory / LEDGER) as ledger:
        ledger.append(line("main"))
        ledger.append(line("main"))
    trio.run(partial(TaskList(session.directory / "tasks", Clock()).create, "a task", by=USER))
    mail = MailWriter(session)
    set_states(session, main="running", ada="running")
    mail.store(mail.make_message("main", "ada", "one"), mail.make_message("main", "ada", "two"))
    set_states(session, main="ended", ada="ended")
    for _ in range(2):
        mail.add_dead_letter(None, "refused", mailbox="ada")
    return session


def findings(*arguments: str) -> list[dict[str, Any]]:
    done = doctor("--json", *arguments)
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    assert done.exit_code == (1 if any(not one["is_harmless"] for one in found) else 0)
    return found


def tear(path: Path) -> None:
    """Truncate the file like a writer that is killed during its last write."""
    path.write_bytes(path.read_bytes()[:-9])


def spoil(path: Path) -> None:
    """Change a byte near the start of the file, like a faulty disk."""
    content = bytearray(path.read_bytes())
    content[1] ^= 1
    path.write_bytes(content)


def dead_process() -> int:
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait()
    return process.pid


def test_cleanly_ended_session_has_no_finding() -> None:
    done = doctor()
    first, *offers = done.stdout.splitlines()
    assert (done.exit_code, first, done.stderr) == (0, "no problems", "")
    assert [line.partition(":")[0] for line in offers] == ['sandbox = "bubblewrap"', 'sandbox = "landlock"']
    assert findings() == []


@pytest.mark.parametrize("name", ["agents/main/transcript.jsonl", "agents/main/events.jsonl", "ledger.jsonl"])
def test_torn_end_of_log_is_moved_to_separate_file(session: SessionDirectory, name: str) -> None:
    path = session.directory / name
    whole = path.read_bytes()
    tear(path)
    [found] = findings()
    assert (found["kind"], found["where"], found["session"]) == ("torn_record", str(path), session.id)
    assert found["remedy"] == f"move the incomplete end to {path.name}.torn"
    assert path.read_bytes() == whole[:-9], "to look changes nothing"
    assert [one["fixed"] for one in findings("--fix")] == [True]
    aside = path.with_name(f"{path.name}.torn").read_bytes()
    assert path.read_bytes() + aside.removesuffix(b"\n") == whole[:-9]
    assert findings() == []


@pytest.mark.parametrize("name", ["ledger.jsonl", "mail/dead/letters.jsonl"])
def test_torn_line_followed_by_others_is_harmless(session: SessionDirectory, name: str) -> None:
    path = session.directory / name
    first, _, second = path.read_bytes().partition(b"\n\n")
    path.write_bytes(first[:-9] + b"\n\n" + second)
    [found] = findings()
    assert (found["kind"], found["is_harmless"], found["where"]) == ("torn_record", True, f"{path}:2")
    done = doctor("--fix")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[1:3] == ["    harmless, left unchanged", "no problems, 1 harmless"]


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("session.json", ""),
        ("roster.json", ""),
        ("agents/main/transcript.jsonl", ":2"),
        ("agents/main/events.jsonl", ":1"),
        ("ledger.jsonl", ":2"),
        ("mail/ada/000001.log", " at byte 0"),
        ("mail/dead/letters.jsonl", ":2"),
        ("tasks/000001.json", ""),
    ],
)
def test_damaged_record_is_reported_and_not_changed(session: SessionDirectory, name: str, where: str) -> None:
    path = session.directory / name
    spoil(path)
    damaged = path.read_bytes()
    [found] = findings("--fix")
    assert (found["kind"], found["where"], found["session"]) == ("damaged_record", f"{path}{where}", session.id)
    assert (found["remedy"], found["fixed"]) == (None, None)
    assert found["advice"]
    assert path.read_bytes() == damaged


def test_damaged_cursor_is_renamed_without_losing_mail(session: SessionDirectory) -> None:
    path = session.directory / "mail/ada/cursor.json"
    path.write_bytes(b"{")
    [found] = findings("--fix")
    assert (found["kind"], found["where"], found["fixed"]) == ("damaged_record", str(path), True)
    assert findings() == []
    with SessionMail.open(session, Clock()) as mail:
        assert mail.files.backlog("ada").messages == 2


def test_mail_of_departed_member_becomes_dead_letters(session: SessionDirectory) -> None:
    with SessionMail.open(session, Clock()) as mail:
        trio.run(mail.roster.leave, "ada")
        [found] = findings()
        assert (found["kind"], found["where"]) == ("left_mail", str(mail.directory / "ada"))
        before = len(mail.dead_letters.pending())
        assert [one["fixed"] for one in findings("--fix")] == [True]
        assert len(mail.dead_letters.pending()) == before + 2
    assert findings() == []


def test_socket_without_listener_is_removed_and_a_lock_file_is_no_finding(session: SessionDirectory) -> None:
    path = socket_path(session.id)
    path.parent.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert findings() == []
    [found] = findings()
    assert (found["kind"], found["where"], found["session"]) == ("dead_socket", str(path), session.id)
    assert [one["fixed"] for one in findings("--fix")] == [True]
    assert not path.exists()
    path.with_suffix(".lock").touch()
    (session.directory / "roster.json.lock").touch()
    assert findings() == []


def test_draft_is_removed_only_if_its_writer_is_dead_and_a_session_of_a_draft_too(session: SessionDirectory) -> None:
    left = session.directory / f".coterie-{dead_process()}-0.draft"
    written = session.directory / f".coterie-{os.getpid()}-0.draft"
    reused = session.directory / f".coterie-{os.getpid()}-1.draft"
    for path in (left, written, reused):
        path.write_bytes(b"{")
    os.utime(reused, (1, 1))
    assert {one["where"] for one in findings()} == {str(left), str(reused)}
    assert [one["fixed"] for one in findings("--fix")] == [True, True]
    assert written.exists()
    begun = session.directory.with_name("20990101-000000-ffffff")
    begun.mkdir()
    (begun / left.name).write_bytes(b"{")
    assert [one["kind"] for one in findings()] == ["draft", "damaged_record"]
    assert [one["fixed"] for one in findings("--fix")] == [True, True]
    assert not begun.exists()
    assert findings() == []


def test_session_recorded_as_running_without_root_is_marked_ended(session: SessionDirectory) -> None:
    set_states(session, ada="idle")
    [found] = findings()
    assert (found["kind"], found["session"]) == ("interrupted_session", session.id)
    assert "(ada)" in found["what"]
    assert crash_cleanup.main(session.id, '[3, [], true, ""]') == 0, "a new root has resumed it"
    assert findings() == [found]
    findings("--fix")
    assert findings() == []


async def test_new_root_waits_until_old_agents_are_marked_ended(session: SessionDirectory) -> None:
    """Otherwise agents that the new root starts could be recorded as ended."""
    order: list[str] = []
    is_begun = trio.Event()

    async def end() -> None:
        await mark_ended(session)
        order.append("ended")

    def begin() -> None:
        with open_root_record(session, Clock()):
            order.append("begun")
            trio.from_thread.run_sync(is_begun.set)

    with SessionMail.open(session, Clock()) as mail, trio.fail_after(10):
        await mail.roster.set_state("ada", "idle")
        async with trio.open_nursery() as nursery:
            # The repair waits for this lock after it has seen that no root runs.
            with FileLock(f"{mail.roster.path}.lock"):
                nursery.start_soon(end)
                while not _is_locked(session.directory / f"{ROOT_RECORD}.lock"):  # noqa: ASYNC110 - a file lock has no event
                    await trio.sleep(0.005)
                nursery.start_soon(trio.to_thread.run_sync, begin)
                with trio.move_on_after(0.2):
                    await is_begun.wait()
        assert order == ["ended", "begun"]
        assert mail.roster.members()["ada"].state == "ended"


def _is_locked(path: Path) -> bool:
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return True
    lock.release()
    return False


async def test_session_counts_as_running_while_its_mail_is_read(session: SessionDirectory) -> None:
    """A torn line may still be written, so it is no finding, even without a root record."""
    tear(session.directory / LEDGER)
    with SessionMail.open(session, Clock()) as mail:
        member = await mail.roster.join("main")
        async with mail.files.open_inbox("main", member.incarnation):
            assert await trio.to_thread.run_sync(findings, "--fix") == []


def test_invalid_configuration_is_reported_with_its_file(tmp_path: Path) -> None:
    agent, settings = tmp_path / ".coterie/agents/bad.md", tmp_path / ".coterie/settings.toml"
    agent.parent.mkdir(parents=True)
    agent.write_text("no front matter")
    settings.write_text("colour = 1")
    found = findings("--fix")
    assert {(one["kind"], one["remedy"]) for one in found} == {("bad_definition", None), ("bad_settings", None)}
    assert {one["where"].rpartition(":")[0] or one["where"] for one in found} == {str(agent), str(settings)}


def test_session_option_limits_the_check_to_one_session(session: SessionDirectory, tmp_path: Path) -> None:
    later = Clock()
    later.advance(60)
    other = SessionDirectory.create(tmp_path, later, task="t", model="m")
    spoil(other.directory / "session.json")
    spoil(session.directory / LEDGER)
    assert [one["session"] for one in findings("--session", session.id)] == [session.id]
    assert {one["session"] for one in findings()} == {session.id, other.id}
    assert doctor("--session", "nope").exit_code == 2


def test_text_output_names_place_problem_and_repair(session: SessionDirectory) -> None:
    path = session.directory / LEDGER
    tear(path)
    spoil(session.directory / "tasks/000001.json")
    shown = doctor().stdout.splitlines()
    assert shown[:2] == [
        f"{path}: the last write was interrupted, so the last record is incomplete",
        "    --fix: move the incomplete end to ledger.jsonl.torn",
    ]
    assert shown[3].startswith("    left unchanged; ")
    assert shown[4] == "2 found: --fix repairs 1"
    shown = doctor("--fix").stdout.splitlines()
    assert shown[1] == "    fixed: move the incomplete end to ledger.jsonl.torn"
    assert shown[4] == "2 found: 1 fixed"


def test_failed_repair_is_reported_and_others_continue(session: SessionDirectory) -> None:
    path = session.directory / LEDGER
    tear(path)
    torn = path.read_bytes()
    draft = session.directory / f".coterie-{dead_process()}-0.draft"
    draft.touch()
    with file_faults(SeededFaults(seed=1, full=1.0)):
        found = findings("--fix")
    assert [(one["kind"], one["fixed"]) for one in found] == [("draft", True), ("torn_record", False)]
    assert "No space left on device" in found[1]["failure"]
    assert path.read_bytes() == torn


def test_directory_in_place_of_a_file_is_a_finding(session: SessionDirectory) -> None:
    (session.directory / LEDGER).unlink()
    (session.directory / LEDGER).mkdir()
    [found] = findings()
    assert (found["kind"], "directory" in found["what"]) == ("damaged_record", True)


def test_forged_approval_file_or_lost_key_is_a_finding(session: SessionDirectory, tmp_path: Path) -> None:
    records = ApprovalStore.of(session, ApprovalKey.of_session(session.id))
    for id_ in ("plan-1", "plan-2"):
        records.save(Approval(id=id_, claim=plan(), asked_at=1.0))
    assert findings() == []
    forged = records.directory / "plan-1.json"
    forged.write_bytes(forged.read_bytes().replace(b'"open"', b'"approved"'))
    [found] = findings("--fix")
    assert (found["kind"], found["where"]) == ("damaged_record", str(forged))
    assert found["what"] == "it was written or changed by another process than the root"
    assert "it grants nothing" in found["advice"]
    assert b'"approved"' in forged.read_bytes()
    key = tmp_path / "home" / "keys" / session.id
    key.unlink()
    [lost] = findings()
    assert (lost["kind"], lost["where"]) == ("damaged_record", str(key))
