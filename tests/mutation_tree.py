"""Private copy of the checkout, with an environment that imports the product only from this copy."""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs

from coterie.orchestrator.processes.linux import become_subreaper
from tests.descendants import descendants

ROOT = Path(__file__).parents[1]
PRODUCT = ("src", "agents", "orchestrator", "mailbox", "memory", "scenarios")
GRACE = 15.0
"""Seconds that tests may use to clean up after an interrupt."""
POLL_SECONDS = 0.05


@attrs.frozen(kw_only=True)
class TestRun:
    """Result of one run of pytest; *exit_code* is None after a timeout."""

    __test__ = False

    exit_code: int | None
    output: str
    seconds: float

    @property
    def first_failure(self) -> str:
        """Id of the first failed test, or the last line of the output."""
        for line in self.output.splitlines():
            if line.startswith(("FAILED ", "ERROR ")):
                return line.split(" - ")[0].partition(" ")[2]
        return (self.output.strip().splitlines() or ["no output"])[-1]


@attrs.define(eq=False)
class MutationTree:
    """Copy of the checkout at *root*, with its environment in `.venv`."""

    home: Path
    """Temporary directory with the copy and all files that its tests write."""
    _times: Iterator[int] = attrs.field(factory=lambda: count(int(time.time()) + 10), init=False)

    @property
    def root(self) -> Path:
        """Directory of the tracked files."""
        return self.home / "tree"

    @property
    def python(self) -> Path:
        """Interpreter that imports the product from the copy."""
        return self.root / ".venv/bin/python"

    @contextmanager
    def changed(self, file: str, text: str) -> Iterator[None]:
        """Replace the content of *file* by *text* within the block."""
        path = self.root / file
        before = path.read_text(encoding="utf-8")
        self._write(path, text)
        try:
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, text: str) -> None:
        """Set a unique modification time, because Python checks compiled code by time and size of the source."""
        path.write_text(text, encoding="utf-8")
        moment = next(self._times)
        os.utime(path, (moment, moment))

    def run_tests(self, tests: list[str], *, timeout: float) -> TestRun:
        """Run pytest in the copy until the first failure, then kill all processes that it started."""
        scratch = self.home / "p"
        command = [str(self.python), "-m", "pytest", "-x", "-q", "-rfE", "--no-header", "--tb=line"]
        command += ["-p", "no:cacheprovider", f"--basetemp={scratch}", *tests]
        environment = os.environ | {"TMPDIR": str(self.home), "COLUMNS": "200"}
        began = time.monotonic()
        with (self.home / "output").open("w+b") as output:
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C at the terminal is for the runner alone, which passes it on
            )
            try:
                exit_code = _wait(process, timeout)
            finally:
                _end(process)
            output.seek(0)
            text = output.read().decode(errors="replace")
        shutil.rmtree(scratch, ignore_errors=True)
        return TestRun(exit_code=exit_code, output=text, seconds=time.monotonic() - began)


@contextmanager
def copied_tree() -> Iterator[MutationTree]:
    """Copy the tracked files of the working tree; remove the copy at the end of the block."""
    # A short path: there will be sockets below it.
    with _orphans_are_ours(), TemporaryDirectory(prefix="mut-", ignore_cleanup_errors=True) as home:
        tree = MutationTree(Path(home))
        names = subprocess.check_output(["/usr/bin/env", "git", "ls-files", "-z"], cwd=ROOT).decode().split("\0")
        for name in filter(None, names):
            if os.path.lexists(ROOT / name):
                (tree.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree.root / name, follow_symlinks=False)
        _make_environment(tree)
        subprocess.run([tree.python, "-m", "compileall", "-q", *PRODUCT, "tests"], cwd=tree.root, check=True)
        _check_imports(tree)
        yield tree


@contextmanager
def _orphans_are_ours() -> Iterator[None]:
    """Become a subreaper, so that orphaned processes can be killed."""
    before = become_subreaper(yes=True)
    try:
        yield
    finally:
        become_subreaper(yes=before)


def _make_environment(tree: MutationTree) -> None:
    """Make an environment with the installed packages that imports the product from the copy."""
    venv.create(tree.root / ".venv", symlinks=True, with_pip=False)
    packages = sysconfig.get_path("purelib")
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # Of a directory on the path, unlike the environment's own, no .pth file is read, ours with the checkout among them.
    path_file = tree.root / f".venv/lib/{version}/site-packages/copy.pth"
    path_file.write_text(f"{tree.root / 'src'}\n{packages}\n", encoding="utf-8")
    for program in Path(sys.executable).parent.iterdir():
        copy = tree.python.parent / program.name
        if program.name == "coterie":
            lines = program.read_text(encoding="utf-8").splitlines()
            copy.write_text("\n".join([f"#!{tree.python}", *lines[1:], ""]), encoding="utf-8")
            copy.chmod(0o755)
        elif not copy.exists() and not program.name.startswith(("python", "activate", "Activate")):
            copy.symlink_to(program)


def _check_imports(tree: MutationTree) -> None:
    """Exit if the product would be imported from another tree than the copy."""
    ask = "import coterie, coterie.agents.settings as s, sys; print(coterie.__file__, s.__file__, *sys.path)"
    said = subprocess.check_output([tree.python, "-c", ask], cwd=tree.root).decode().split()
    if not all(Path(name).is_relative_to(tree.root) for name in said[:2]) or str(ROOT / "src") in said:
        raise RuntimeError(f"the copy in {tree.root} is not what is imported: {said}")


def _wait(process: subprocess.Popen[bytes], timeout: float) -> int | None:
    """Return the exit code of *process*, or None after *timeout*; reap orphans while waiting."""
    until = time.monotonic() + timeout
    while time.monotonic() < until:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            time.sleep(POLL_SECONDS)
        elif ended.si_pid == process.pid:
            return process.wait()
        else:
            os.waitpid(ended.si_pid, 0)
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the remaining processes, then kill those that do not end."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    while left := descendants():
        for child in left:
            try:
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, os.WNOHANG)
            except (ProcessLookupError, ChildProcessError):
                continue
        time.sleep(0.01)
