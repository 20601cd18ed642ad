"""Runs git commands without prompts, hooks, or `GIT_*` variables of the environment."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import trio

from coterie.errors import ReasonError

GRACE = 2.0
"""Seconds that git gets after SIGTERM to remove its locks and partial files; SIGKILL follows."""

_COMMAND = ("git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0")
_SETTINGS = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


class GitFailed(ReasonError):
    """A git command failed or could not be started; `reason` contains the error line of git or of the system."""


async def run_git(directory: Path, *arguments: str, repository: Path | None = None) -> str:
    """Run git in *directory* and return the output without the last newline. Raises `GitFailed` if git fails.

    With *repository*, the path of a git directory, git reads the configuration there. Without it, an agent could place
    files in *directory* that lead git to another repository, whose configuration names programs to run.

    On cancellation, git and its children are killed before this function ends. The root (the main process of a session)
    may call this: git stays in the terminal session of the root, so the root does not kill git as an orphan.
    """
    # Git sets its variables for hooks; they would redirect every command to another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | _SETTINGS
    if repository is not None:
        environment["GIT_COMMON_DIR"] = str(repository)
    try:
        ended = await trio.run_process(
            [*_COMMAND, *arguments],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            process_group=0,
            deliver_cancel=_end_group,
        )
    except OSError as exc:
        raise GitFailed(
            f"git cannot be run: {exc.strerror}: {exc.filename}; check that this path exists and git is installed"
        ) from exc
    if ended.returncode != 0:
        raise GitFailed(_failure_reason(ended.returncode, os.fsdecode(ended.stderr)))
    return os.fsdecode(ended.stdout).removesuffix("\n")


async def _end_group(process: trio.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with trio.move_on_after(GRACE):
            await process.wait()
        os.killpg(process.pid, signal.SIGKILL)


def _failure_reason(status: int, stderr: str) -> str:
    if status < 0:
        return f"git was killed by {signal.Signals(-status).name}"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    # The lines after the first error are advice or consequences.
    errors = [line for line in lines if line.startswith(("fatal:", "error:"))]
    shown = errors[:1] or lines[-1:] or [f"git exited with status {status}"]
    return f"git failed: {shown[0].removeprefix('fatal:').removeprefix('error:').strip()}"
