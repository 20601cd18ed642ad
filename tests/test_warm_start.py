"""Programs forked from the warm process behave like programs of a new interpreter."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests import warm_start

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, "-P", "-m", "coterie"]


@pytest.mark.parametrize("arguments", ["--version", "run", "nonsense", "scenario list", "report none"])
def test_forked_program_prints_and_exits_like_a_new_interpreter(home: Path, tmp_path: Path, arguments: str) -> None:
    def run() -> tuple[int, bytes, bytes]:
        done = subprocess.run(
            [*PROGRAM, *arguments.split()], cwd=tmp_path, capture_output=True, timeout=60, check=False
        )
        return done.returncode, done.stdout, done.stderr

    forked = run()
    with warm_start.cold_start():
        assert run() == forked


@pytest.mark.parametrize("is_cold", [False, True], ids=["forked", "cold"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_proc_shows_arguments_environment_and_directory_of_the_program(
    tmp_path: Path, number: signal.Signals, status: int, *, is_cold: bool
) -> None:
    environment = {**os.environ, "COTERIE_HOME": str(tmp_path), "MARK": "x" * 1000}
    command = [*PROGRAM, "serve", "--port", "0", "--json"]
    with warm_start.cold_start(is_cold=is_cold):
        server = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    with server:
        assert server.stdout is not None
        server.stdout.readline()
        process = psutil.Process(server.pid)
        assert [part for part in process.cmdline() if part] == command
        assert {name: value for name, value in process.environ().items() if value} == environment
        assert (process.cwd(), process.ppid()) == (str(tmp_path), os.getpid())
        server.send_signal(number)
        assert server.wait(30) == status


def test_forked_program_has_only_the_descriptors_that_it_was_given(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with subprocess.Popen(
        [*PROGRAM, "serve", "--port", "0", "--json"], cwd=tmp_path, pass_fds=[writer], stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        server.stdout.readline()
        open_files = {int(path.name): str(path.readlink()) for path in Path(f"/proc/{server.pid}/fd").iterdir()}
        pipes = {number for number, target in open_files.items() if target.startswith("pipe:")}
        assert pipes == {1, writer}
        assert open_files[writer] == str(Path(f"/proc/self/fd/{writer}").readlink())
        os.close(reader)
        os.close(writer)
        server.terminate()
        server.wait(30)
