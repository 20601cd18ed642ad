"""No process outlives a killed root; a root that ends normally is followed only by its cleanup daemon."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest
import trio
from click.testing import CliRunner

from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.events.root_events import CleanedUp
from coterie.clock import Clock
from coterie.mailbox.transports.bridge.socket_path import socket_path
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.cli.main import main
from coterie.orchestrator.doctor.checks import check_machine, check_session
from coterie.orchestrator.processes import cleanup_daemon
from coterie.orchestrator.processes.cleanup_daemon import KilledProcesses, ProcessScan, kill_all
from coterie.orchestrator.session.root_lock import ROOT_RECORD
from coterie.process_identity import SESSION_VARIABLE, process_start_time
from coterie.session_directory import SessionDirectory
from tests.processes.programs import read_line, running
from tests.processes.project_shell import ProjectShell
from tests.processes.root_harness import open_root_harness
from tests.processes.session_record import events

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_strays")]

LEAVING = """
boss:
  - tools: [{Agent: {description: "wait", prompt: "wait", name: sleeper}}]
sleeper:
  - tools: [{Bash: {command: "setsid sleep 600 & (sleep 600 &) ; (env -i sleep 600 &) ; touch left; sleep 600"}}]
"""


@pytest.fixture
def session(project: Path) -> SessionDirectory:
    """A session without a root."""
    return SessionDirectory.create(project, Clock(), task="t", model="m")


@contextmanager
def open_sleeper(**environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that does nothing; it is killed at the end."""
    command = ("/bin/sh", "-c", "echo running; read line")
    with running(*command, env=environment, stdin=subprocess.PIPE, start_new_session=True) as process:
        # It can be found only now, because a program has no environment for a moment after its start.
        assert read_line(process) == "running"
        yield process


@contextmanager
def open_root_process(project: Path, script: Path) -> Iterator[subprocess.Popen[str]]:
    """A root whose agents have left processes behind, in a separate terminal session."""
    command = (sys.executable, "-m", "tests.processes.agent_root", str(project), str(script))
    with running(*command, start_new_session=True) as root:
        assert read_line(root) == "running"
        yield root


async def all_ended(processes: list[psutil.Process]) -> None:
    while [one for one in processes if process_start_time(one.pid) is not None and one.is_running()]:  # noqa: ASYNC110
        await trio.sleep(0.005)


async def appeared(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC110, ASYNC240 - the simplest reader there is
        await trio.sleep(0.005)


def _named(name: str, processes: list[psutil.Process]) -> list[psutil.Process]:
    return [process for process in processes if process.is_running() and process.name() == name]


@pytest.mark.parametrize("cleanup", ["awake", "stopped", "killed"])
async def test_no_process_outlives_a_killed_root(place: ProjectShell, tmp_path: Path, cleanup: str) -> None:
    """Covers processes that left their group, parent or environment; without a cleanup daemon the doctor ends them."""
    project, script = place.project, tmp_path / "script.yaml"
    # Without its leader, the doctor cannot find a process without a marker.
    script.write_text(LEAVING.replace("(env -i sleep 600 &) ;", "") if cleanup == "killed" else LEAVING)
    with trio.fail_after(60), open_root_process(project, script) as root:
        await appeared(project / "left")
        # Each of the three runs another program for a moment before it sleeps.
        while len(_named("sleep", below := psutil.Process(root.pid).children(recursive=True))) < 3:  # noqa: ASYNC110
            await trio.sleep(0.005)
        [keeper] = _named(cleanup_daemon.TITLE, below)
        session = SessionDirectory.newest(project)
        assert socket_path(session.id).exists()
        if cleanup == "stopped":
            keeper.suspend()
        elif cleanup == "killed":
            root.send_signal(signal.SIGSTOP)  # so that it does not notice
            keeper.kill()
        root.kill()
        root.wait()
        if cleanup == "killed":
            done = await trio.to_thread.run_sync(place.coterie, "doctor", "--fix", "--json")
            found = json.loads(done.stdout)["findings"]
            strays = [one["what"] for one in found if one["kind"] == "stray_process"]
            assert any("'sleep 600' of sleeper#1" in what for what in strays), strays
            assert all(one["fixed"] for one in found)
        await all_ended(below)
        assert [*check_machine(session), *check_session(session.id, Clock())] == []
        assert not socket_path(session.id).exists()


@pytest.mark.parametrize("way", ["stays", "hung-up", "at-once", "asleep", "in-one-breath"])
async def test_records_are_repaired_however_a_root_dies(session: SessionDirectory, way: str) -> None:
    """The root dies slowly, before its cleanup daemon is ready, or with a stopped one; the repair is recorded."""
    await _die(session, way)
    assert [*check_machine(session), *check_session(session.id, Clock())] == []
    assert events(session, CleanedUp) == [
        CleanedUp(killed=0, mended=["interrupted_session: mark all its agents as ended"], failures=[])
    ]


async def test_nothing_is_recorded_when_root_and_cleanup_daemon_are_gone(session: SessionDirectory) -> None:
    """No process is left to repair the records."""
    await _die(session, "after-farewell")
    assert events(session, CleanedUp) == []
    assert [*check_machine(session), *check_session(session.id, Clock())] == []


async def test_failed_repair_is_recorded_and_reported_by_the_doctor(session: SessionDirectory) -> None:
    """A directory is in the place of the lock file, which has the same effect as a full disk."""
    lock = session.directory / f"{ROOT_RECORD}.lock"

    def stand_in_the_way() -> None:
        lock.unlink()
        lock.mkdir()

    await _die(session, "hung-up", stand_in_the_way)
    [cleaning] = events(session, CleanedUp)
    assert cleaning.mended == []
    [failure] = cleaning.failures
    assert "Is a directory" in failure
    [finding] = check_session(session.id, Clock())
    assert finding.kind == "interrupted_session"
    assert f"its cleanup daemon could not repair it: {failure}" in finding.what


def test_doctor_cleans_up_after_root_and_cleanup_daemon_were_killed_together(session: SessionDirectory) -> None:
    trio.run(partial(_die, session, "stays", kills_cleanup=True))
    assert CliRunner().invoke(main, ["list"]).stdout.split()[1] == "interrupted"
    [finding] = check_session(session.id, Clock())
    assert "its cleanup daemon was killed too" in finding.what
    assert CliRunner().invoke(main, ["doctor", "--fix", "--session", session.id]).exit_code == 1
    assert [*check_machine(session), *check_session(session.id, Clock())] == []


async def _die(
    session: SessionDirectory, way: str, before: Callable[[], None] = lambda: None, *, kills_cleanup: bool = False
) -> None:
    """End a root of *session* in a *way* of `cleanup_root`; return when it and its cleanup daemon are gone."""
    with SessionMail.open(session, Clock()) as office:
        await office.roster.join("scout")
    command = (sys.executable, "-m", "tests.processes.cleanup_root", session.id, way)
    with trio.fail_after(60), running(*command, start_new_session=True) as root:
        keeper = psutil.Process(int(read_line(root)))
        before()
        if kills_cleanup:
            keeper.kill()
        if way in ("stays", "hung-up"):
            root.kill()
        await trio.to_thread.run_sync(root.wait)
        await all_ended([keeper])


async def test_killed_cleanup_daemon_is_replaced_and_reported(project: Path) -> None:
    async with open_root_harness(project, LEAVING) as tree:
        post = tree.root.cleanup
        first = post.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        while post.pid == first:  # noqa: ASYNC110 - nothing tells
            await trio.sleep(0.005)
        second = post.pid
        assert second is not None
        assert process_start_time(second) is not None
    assert process_start_time(second) is None
    assert [(event.layer, event.reason) for event in events(tree.session, LayerFailed)] == [
        ("cleanup", "the cleanup daemon, which cleans up after a crash, ended with status -9; it is restarted")
    ]


def test_processes_of_other_sessions_are_not_killed(session: SessionDirectory) -> None:
    """A nested session has its own cleanup daemon."""
    command = f"sleep 600 & {SESSION_VARIABLE}=inner sh -c 'echo; exec sleep 600' & wait"
    environment = {SESSION_VARIABLE: session.id, "PATH": os.environ["PATH"]}
    with running("/bin/sh", "-c", command, env=environment) as shell:
        read_line(shell)
        children = psutil.Process(shell.pid).children()
        [other] = [child for child in children if child.environ()[SESSION_VARIABLE] == "inner"]
        [same] = [child for child in children if child != other]
        try:
            assert kill_all(_search(session), session.directory / ROOT_RECORD, b"") == KilledProcesses(killed=2)
            assert shell.wait() == -signal.SIGKILL
            assert process_start_time(same.pid) is None
            assert process_start_time(other.pid) is not None
        finally:
            other.kill()


def test_orphan_without_marker_belongs_to_the_session_of_its_leader(session: SessionDirectory) -> None:
    """Also after its leader is dead, because its terminal session keeps its number."""
    command = "(env -i sh -c 'echo; exec sleep 600' &) ; echo; exec sleep 600"
    environment = {SESSION_VARIABLE: session.id, "PATH": os.environ["PATH"]}
    with subprocess.Popen(
        ["/bin/sh", "-c", command], env=environment, stdout=subprocess.PIPE, start_new_session=True
    ) as leader:
        try:
            assert leader.stdout is not None
            assert [leader.stdout.readline(), leader.stdout.readline()] == [b"\n", b"\n"]
            search = _search(session)
            [orphan] = [process for process in search.find() if process.pid != leader.pid]
            assert (orphan.named, orphan.leader) == (None, leader.pid)
            leader.kill()
            leader.wait()
            assert [process.pid for process in search.find()] == [orphan.pid]
            assert kill_all(search, session.directory / ROOT_RECORD, b"") == KilledProcesses(killed=1)
            assert process_start_time(orphan.pid) is None
        finally:
            if leader.poll() is None:
                os.killpg(leader.pid, signal.SIGKILL)


def test_processes_of_a_new_root_are_not_killed(session: SessionDirectory) -> None:
    record = session.directory / ROOT_RECORD
    record.write_bytes(b"of the new one")
    with open_sleeper(**{SESSION_VARIABLE: session.id}) as sleeper:
        assert kill_all(_search(session), record, b"of the old one") == KilledProcesses(is_taken_over=True)
        assert sleeper.poll() is None


def test_later_process_with_the_same_pid_is_not_killed(session: SessionDirectory) -> None:
    with open_sleeper(**{SESSION_VARIABLE: session.id}) as sleeper:
        [found] = _search(session).find()
        cleanup_daemon._kill([found._replace(began=found.began - 1)])  # noqa: SLF001 - numbers do not come again on request
        assert process_start_time(sleeper.pid) is not None


def _search(session: SessionDirectory) -> ProcessScan:
    return ProcessScan(SESSION_VARIABLE.encode(), session.id.encode())
