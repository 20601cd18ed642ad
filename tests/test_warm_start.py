"""Programs forked from the warm process behave like programs of a new interpreter."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import warm_start

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


@contextmanager
def serving(directory: Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run `coterie serve` until the block ends, from the moment that it accepts connections."""
    command = [*PROGRAM, "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, **options) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            yield server
        finally:
            server.kill()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_proc_shows_arguments_environment_and_directory_of_the_program(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    environment = {**os.environ, "COTERIE_HOME": str(tmp_path), "MARK": "x" * 1000, "EMPTY": ""}
    with serving(tmp_path, env=environment) as server:
        process = psutil.Process(server.pid)
        assert [part for part in process.cmdline() if part] == [*PROGRAM, "serve", "--port", "0", "--json"]
        assert process.environ() == environment
        assert (process.cwd(), process.ppid()) == (str(tmp_path), os.getpid())
        server.send_signal(number)
        assert server.wait(30) == status


def test_forked_program_has_only_the_descriptors_that_it_was_given(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with serving(tmp_path, pass_fds=[writer]) as server:
        open_files = {int(path.name): str(path.readlink()) for path in Path(f"/proc/{server.pid}/fd").iterdir()}
        pipes = {number for number, target in open_files.items() if target.startswith("pipe:")}
        assert pipes >= {1, writer}
        assert not pipes - {0, 1, 2, writer}
        assert open_files[writer] == str(Path(f"/proc/self/fd/{writer}").readlink())
        os.close(reader)
        os.close(writer)
