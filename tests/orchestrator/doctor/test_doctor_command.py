"""Tests of `coterie doctor` over files damaged by crashes, disks and users."""

import json
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import Result
from filelock import FileLock, Timeout

from coterie.agents.events.root_events import CleanedUp
from coterie.agents.loop.conversation.transcript import load_transcript
from coterie.clock import Clock
from coterie.files import file_faults
from coterie.mailbox.contract import DeadLetter
from coterie.mailbox.tasks.task import USER
from coterie.mailbox.tasks.task_list import TaskList
from coterie.mailbox.transports.bridge.socket_path import socket_path
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.approvals.store import Approval, ApprovalKey, ApprovalStore
from coterie.orchestrator.cli.views.event_text import event_text
from coterie.orchestrator.doctor import checks, crash_cleanup
from coterie.orchestrator.doctor.doctor_finding import DoctorFinding
from coterie.orchestrator.doctor.session_checks import mark_ended
from coterie.orchestrator.events.session_reader import read_session
from coterie.orchestrator.gateway.ledger import LEDGER, Ledger
from coterie.orchestrator.session.root_lock import ROOT_RECORD, open_root_record
from coterie.session_directory import SessionDirectory
from tests.mailbox.file_mail import envelope
from tests.orchestrator.approvals.approval_harness import plan
from tests.orchestrator.cli.command_runner import coterie
from tests.orchestrator.gateway.test_ledger import line
from tests.orchestrator.session_writer import FINISHED, STARTED, open_writer
from tests.seeded_faults import SeededFaults


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
    trio.run(_fill, session)
    return session


async def _fill(session: SessionDirectory) -> None:
    await TaskList(session.directory / "tasks", Clock()).create("a task", by=USER)
    with SessionMail.open(session, Clock()) as mail:
        for name in ("main", "ada"):
            await mail.roster.join(name)
        await mail.files.send(envelope(1))
        await mail.files.send(envelope(2))
        for name in ("main", "ada"):
            await mail.roster.set_state(name, "ended")
        letter = DeadLetter(reason="refused", detail="", mailbox="ada", at=1.0, envelope=None, raw=b"x")
        mail.dead_letters.add(letter)
        mail.dead_letters.add(letter)


def doctor(*arguments: str) -> Result:
    return coterie("doctor", *arguments)


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
    """Return the pid of a process that has ended."""
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
    assert found["remedy"] == f"move the torn end to {path.name}.torn"
    assert path.read_bytes() == whole[:-9], "to look changes nothing"
    assert [one["fixed"] for one in findings("--fix")] == [True]
    aside = path.with_name(f"{path.name}.torn").read_bytes()
    assert path.read_bytes() + aside.removesuffix(b"\n") == whole[:-9]
    assert findings() == []


def test_agent_can_append_after_torn_end_was_repaired(session: SessionDirectory) -> None:
    path = session.directory / "agents/main/transcript.jsonl"
    tear(path)
    findings("--fix")
    with open_writer(session.directory) as agent:
        agent.write_text("assistant", "done again")
    assert load_transcript(path).dropped_bytes == 0
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


def test_draft_is_removed_only_if_its_writer_is_dead(session: SessionDirectory) -> None:
    left = session.directory / f".coterie-{dead_process()}-0.draft"
    written = session.directory / f".coterie-{os.getpid()}-0.draft"
    reused = session.directory / f".coterie-{os.getpid()}-1.draft"
    for path in (left, written, reused):
        path.write_bytes(b"{")
    os.utime(reused, (1, 1))
    assert {one["where"] for one in findings()} == {str(left), str(reused)}
    assert [one["fixed"] for one in findings("--fix")] == [True, True]
    assert written.exists()
    assert findings() == []


def test_session_killed_during_creation_is_removed(session: SessionDirectory) -> None:
    begun = session.directory.with_name("20990101-000000-ffffff")
    begun.mkdir()
    (begun / f".coterie-{dead_process()}-0.draft").write_bytes(b"{")
    assert [one["kind"] for one in findings()] == ["draft", "damaged_record"]
    assert [one["fixed"] for one in findings("--fix")] == [True, True]
    assert not begun.exists()


def test_session_recorded_as_running_without_root_is_marked_ended(session: SessionDirectory) -> None:
    with SessionMail.open(session, Clock()) as mail:
        trio.run(mail.roster.set_state, "ada", "idle")
        [found] = findings()
        assert (found["kind"], found["session"]) == ("interrupted_session", session.id)
        assert "(ada)" in found["what"]
        findings("--fix")
        assert {member.state for member in mail.roster.members().values()} == {"ended"}
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
    """Return True if another holder has locked *path*."""
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return True
    lock.release()
    return False


@pytest.mark.parametrize(
    ("event", "facts"),
    [
        (CleanedUp(killed=1, mended=["draft: remove it"], failures=[]), ("1 process", "draft: remove it")),
        (CleanedUp(killed=0, mended=[], failures=["process 7 survived"]), ("0 processes", "process 7 survived")),
        (CleanedUp(killed=2, mended=[], failures=[], is_taken_over=True), ("2 processes", "new root")),
    ],
)
def test_cleaned_up_event_text_names_kills_repairs_and_failures(event: CleanedUp, facts: tuple[str, str]) -> None:
    assert all(fact in event_text(event) for fact in facts)


def test_findings_before_a_failed_check_are_repaired(
    session: SessionDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session log then contains the repairs and the error."""

    def fail(*_: object, **__: object) -> list[DoctorFinding]:
        raise ZeroDivisionError("unexpected")

    monkeypatch.setattr(checks, "log_findings", fail)
    with SessionMail.open(session, Clock()) as mail:
        trio.run(mail.roster.set_state, "ada", "idle")
        assert crash_cleanup.main(session.id, '[3, [7], false, ""]') == 1
        assert mail.roster.members()["ada"].state == "ended"
    last = list(read_session(session.directory))[-1]
    assert last.event == CleanedUp(
        killed=3,
        mended=["interrupted_session: record that all agents have ended"],
        failures=["process 7 could not be killed", "ZeroDivisionError: unexpected"],
    )


def test_crash_cleanup_skips_repair_when_new_root_has_resumed(session: SessionDirectory) -> None:
    with SessionMail.open(session, Clock()) as mail:
        trio.run(mail.roster.set_state, "ada", "idle")
        assert crash_cleanup.main(session.id, '[3, [], true, ""]') == 0
        assert mail.roster.members()["ada"].state == "idle"


async def test_session_counts_as_running_while_its_mail_is_read(session: SessionDirectory) -> None:
    """A torn line may still be written, so it is no finding, even without a root record."""
    tear(session.directory / LEDGER)
    with SessionMail.open(session, Clock()) as mail:
        member = await mail.roster.join("main")
        async with mail.files.open_inbox("main", member.incarnation):
            assert await trio.to_thread.run_sync(findings, "--fix") == []


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        (".coterie/agents/bad.md", "no front matter", "bad_definition"),
        (".coterie/settings.toml", "colour = 1", "bad_settings"),
    ],
)
def test_invalid_configuration_is_reported_with_its_file(tmp_path: Path, path: str, content: str, kind: str) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text(content)
    [found] = findings("--fix")
    assert (found["kind"], found["remedy"], found["fixed"]) == (kind, None, None)
    assert str(file) in found["where"]


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
        f"{path}: the last write was torn; all earlier records are intact",
        "    --fix: move the torn end to ledger.jsonl.torn",
    ]
    assert shown[3].startswith("    left unchanged; ")
    assert shown[4] == "2 found: --fix repairs 1"
    shown = doctor("--fix").stdout.splitlines()
    assert shown[1] == "    fixed: move the torn end to ledger.jsonl.torn"
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


@pytest.mark.parametrize("name", ["tasks/000001.json", LEDGER])
def test_directory_in_place_of_a_file_is_a_finding(session: SessionDirectory, name: str) -> None:
    (session.directory / name).unlink()
    (session.directory / name).mkdir()
    [found] = findings()
    assert (found["kind"], "directory" in found["what"]) == ("damaged_record", True)


def test_forged_or_damaged_approval_file_is_a_finding(session: SessionDirectory, tmp_path: Path) -> None:
    records = ApprovalStore.of(session, ApprovalKey.of_session(session.id))
    for id_ in ("plan-1", "plan-2", "plan-3"):
        records.save(Approval(id=id_, claim=plan(), asked_at=1.0))
    assert findings() == []
    forged, torn = (records.directory / f"{name}.json" for name in ("plan-1", "plan-2"))
    forged.write_bytes(forged.read_bytes().replace(b'"open"', b'"approved"'))
    tear(torn)
    found = {one["where"]: one for one in findings("--fix")}
    assert found.keys() == {str(forged), str(torn)}
    assert {one["kind"] for one in found.values()} == {"damaged_record"}
    assert found[str(forged)]["what"] == "it was written or changed by another process than the root"
    assert found[str(torn)]["what"].startswith("it cannot be read: ")
    assert "it grants nothing" in found[str(forged)]["advice"]
    assert b'"approved"' in forged.read_bytes()
    key = tmp_path / "home" / "keys" / session.id
    key.unlink()
    [lost] = findings()
    assert (lost["kind"], lost["where"]) == ("damaged_record", str(key))
