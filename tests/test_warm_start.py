"""Programs forked from the warm process behave like programs of a new interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests import warm_start
from tests.processes.programs import read_line, running

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, "-P", "-m", "coterie"]


@pytest.mark.parametrize("arguments", ["run", "scenario list", "report none"])
def test_forked_program_prints_and_exits_like_a_new_interpreter(home: Path, tmp_path: Path, arguments: str) -> None:
    def run() -> tuple[int, bytes, bytes]:
        done = subprocess.run(
            [*PROGRAM, *arguments.split()], cwd=tmp_path, capture_output=True, timeout=60, check=False
        )
        return done.returncode, done.stdout, done.stderr

    forked = run()
    with warm_start.cold_start():
        assert run() == forked


def test_forked_program_has_the_given_arguments_environment_and_descriptors(tmp_path: Path) -> None:
    environment = {**os.environ, "COTERIE_HOME": str(tmp_path), "MARK": "x" * 1000, "EMPTY": ""}
    command = (*PROGRAM, "serve", "--port", "0", "--json")
    reader, writer = os.pipe()
    with running(*command, cwd=tmp_path, env=environment, pass_fds=[writer]) as server:
        read_line(server)
        process = psutil.Process(server.pid)
        assert [part for part in process.cmdline() if part] == list(command)
        assert process.environ() == environment
        assert (process.cwd(), process.ppid()) == (str(tmp_path), os.getpid())
        open_files = {int(path.name): str(path.readlink()) for path in Path(f"/proc/{server.pid}/fd").iterdir()}
        pipes = {number for number, target in open_files.items() if target.startswith("pipe:")}
        assert pipes >= {1, writer}
        assert not pipes - {0, 1, 2, writer}
        assert open_files[writer] == str(Path(f"/proc/self/fd/{writer}").readlink())
        os.close(reader)
        os.close(writer)
        server.terminate()
        assert server.wait(30) == 143
