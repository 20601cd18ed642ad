"""Strays of killed roots are found and ended, and sessions are stopped from outside."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from coterie.clock import Clock
from coterie.mailbox.transports.bridge.socket_path import socket_path
from coterie.mailbox.transports.session_mail import SessionMail
from coterie.orchestrator.cli.main import main
from coterie.orchestrator.doctor.orphan_processes import (
    find_orphan_processes,
    kill_orphan_process,
)
from coterie.orchestrator.session.root_lock import find_root
from coterie.process_identity import SESSION_VARIABLE, process_start_time
from coterie.session_directory import SessionDirectory
from tests.processes import doctor_root

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_strays")]

ROOT = Path(doctor_root.__file__).parents[2]


@pytest.fixture
def session(project: Path, monkeypatch: pytest.MonkeyPatch) -> SessionDirectory:
    """A session of the working directory with one agent on its roster."""
    monkeypatch.chdir(project)
    made = SessionDirectory.create(project, Clock(), task="t", model="m")
    with SessionMail.open(made, Clock()) as office:
        trio.run(office.roster.join, "scout")
    return made


def coterie(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def findings(*arguments: str) -> list[dict[str, Any]]:
    done = coterie("doctor", "--json", *arguments)
    found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    assert done.exit_code == (1 if found else 0)
    return found


@contextmanager
def open_bare_root(session: SessionDirectory) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A root in a separate process, and the pid of its child; the root is killed at the end."""
    command = [sys.executable, "-P", "-m", doctor_root.__name__, session.id]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def is_alive(pid: int) -> bool:
    return process_start_time(pid) is not None


def test_strays_of_a_killed_root_are_found_and_ended(session: SessionDirectory) -> None:
    with open_bare_root(session) as (root, stray):
        assert findings() == [], "its root lives"
        root.kill()
        root.wait()
        found = findings()
        assert [(one["kind"], one["session"]) for one in found] == [
            ("stray_process", session.id),
            ("interrupted_session", session.id),
        ]
        assert found[0]["where"] == f"process {stray}"
        assert "'/bin/sleep 1000' of scout#1" in found[0]["what"]
        assert is_alive(stray), "to look changes nothing"
        assert [one["fixed"] for one in findings("--fix")] == [True, True]
        assert not is_alive(stray)
        assert findings() == []
        with SessionMail.open(session, Clock()) as office:
            assert office.roster.members()["scout"].state == "ended"


def test_processes_of_another_home_are_not_killed(session: SessionDirectory, tmp_path: Path) -> None:
    environment = {SESSION_VARIABLE: session.id, "COTERIE_HOME": str(tmp_path / "other")}
    with subprocess.Popen(["/bin/sleep", "1000"], env=environment) as process:
        assert find_orphan_processes() == []
        assert process.poll() is None
        process.kill()


def test_a_stray_that_ignores_requests_is_killed(session: SessionDirectory) -> None:
    code = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    environment = {**os.environ, SESSION_VARIABLE: session.id}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        process.stdout.readline()
        [stray] = find_orphan_processes(session.id)
        trio.run(kill_orphan_process, stray, 0.1)
        assert process.wait() == -signal.SIGKILL


def test_a_doctor_within_a_session_spares_itself_and_its_parents(
    session: SessionDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two shells with the marker of a session that does not run; the doctor runs in the inner one."""
    monkeypatch.setenv(SESSION_VARIABLE, session.id)
    command = f"{sys.executable} -P -m coterie doctor --json; exit $?"
    done = subprocess.run(["/bin/sh", "-c", f"sh -c '{command}'; exit $?"], capture_output=True, check=False)
    assert [one["kind"] for one in json.loads(done.stdout)["findings"]] == ["interrupted_session"]


def test_stopping_a_session_lists_its_running_agents(session: SessionDirectory) -> None:
    with open_bare_root(session) as (root, stray):
        done = coterie("stop", session.id[:-2])
        assert (done.exit_code, done.stdout) == (0, f"stopped session {session.id}: scout\n")
        assert root.wait() == 0
        assert not is_alive(stray)
    assert find_root(session) is None


def test_stop_now_leaves_nothing_for_the_doctor(session: SessionDirectory) -> None:
    path = socket_path(session.id)
    with open_bare_root(session) as (root, stray):
        path.parent.mkdir(mode=0o700)
        os.mknod(path)  # no socket, and none of ours
        done = coterie("stop", session.id, "--now", "--json")
        assert json.loads(done.stdout) == {"session": session.id, "killed": True, "agents": ["scout"]}
        assert root.wait() == -signal.SIGKILL
        assert not is_alive(stray)
    assert findings() == []
    assert path.exists()
