"""Each rule of conftest.py fails an inner run of pytest that breaks it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests import descendants as module
from tests.descendants import descendants

ROOT = Path(__file__).parents[1]

INTERRUPTS_A_CHILD = """
import signal, subprocess

def test_interrupts_a_child():
    child = subprocess.Popen(["sleep", "60"])
    child.send_signal(signal.SIGINT)
    try:
        assert child.wait(10) == -signal.SIGINT
    finally:
        child.kill()
        child.wait()
"""
BREAKS_RULES = """
import subprocess
from pathlib import Path

import pytest

def test_leaves_a_child():
    child = subprocess.Popen(["sleep", "60"])
    Path(__file__).with_name("pid").write_text(str(child.pid))
    child.returncode = 0  # its destructor is not to warn

def test_skips():
    pytest.skip("no quartz; install quartz")

async def test_skips_in_a_task():
    pytest.skip("no quartz; install quartz")

@pytest.mark.skipif(True, reason="no moon")
def test_is_skipped():
    pass
"""


def run_pytest(directory: Path, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the test file *text* with the rules of this directory, from a shell that ignores SIGINT."""
    path = directory / "test_inner.py"
    path.write_text(text)
    rules = ["-q", "-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml")]
    command = ["/bin/sh", "-c", """trap '' INT; exec "$0" "$@\"""", sys.executable, "-m", "pytest", *rules]
    return subprocess.run(
        [*command, *options, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.slow
def test_leftover_child_fails_a_test_and_skip_reasons_are_counted(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, BREAKS_RULES + INTERRUPTS_A_CHILD)
    pid = int((tmp_path / "pid").read_text())
    os.kill(pid, signal.SIGKILL)
    assert done.returncode == 1, done.stdout
    assert "2 passed, 3 skipped, 1 error" in done.stdout
    assert f"left behind: {pid} sleep 60" in done.stdout
    assert "skipped 2: no quartz; install quartz\nskipped 1: no moon\n" in done.stdout


@pytest.mark.slow
def test_sigint_reaches_children_of_workers_when_the_shell_ignores_it(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, INTERRUPTS_A_CHILD, "-n", "1")
    assert done.returncode == 0, done.stdout


GRANDCHILD = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"


@pytest.mark.slow
@pytest.mark.parametrize("has_children_file", [True, False], ids=["proc", "psutil"])
def test_descendants_include_grandchildren(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_children_file: bool
) -> None:
    if not has_children_file:
        monkeypatch.setattr(module, "PROC", tmp_path)
    before = descendants()
    with subprocess.Popen([sys.executable, "-c", GRANDCHILD], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        found = {one.pid for one in descendants() - before}
        os.kill(grandchild, signal.SIGKILL)
    assert found == {child.pid, grandchild}
    assert descendants() == before


@pytest.mark.skipif(
    not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists(),
    reason="needs a kernel with CONFIG_PROC_CHILDREN",
)
def test_descendants_include_zombies() -> None:
    child = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    assert f"{child.pid} true" in map(str, descendants())
    child.wait()
    assert child.pid not in {one.pid for one in descendants()}
