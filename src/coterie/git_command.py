"""Git commands without prompts, hooks or inherited configuration."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import attrs
import trio

GRACE = 2.0
"""Seconds in which git, told to end, removes its locks and what it has half made."""

_COMMAND = ("git", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0")
_SETTINGS = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


@attrs.define(eq=False)
class GitFailed(Exception):
    """Git did not do what it was asked for."""

    reason: str
    """What it said last, in one line."""

    def __str__(self) -> str:
        return self.reason


async def run_git(directory: Path, *arguments: str, repository: Path | None = None) -> str:
    """What git prints, run in *directory*, without the last newline. Raises `GitFailed`.

    With a *repository* it takes its configuration from there, whatever stands in the directory: an agent may have put
    there what leads to another one, whose configuration names programs to run.

    Cancelled, it ends git and all that git has started, and returns when git is reaped. It can be used in a root: git
    stays in the session of this process, so nobody takes it for an orphan.
    """
    try:
        ended = await trio.run_process(
            [*_COMMAND, *arguments],
            cwd=directory,
            env=_environment(repository),
            stdin=subprocess.DEVNULL,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            process_group=0,
            deliver_cancel=_end_group,
        )
    except OSError as exc:
        raise GitFailed(f"git cannot be run: {exc.strerror}: {exc.filename}") from exc
    if ended.returncode != 0:
        raise GitFailed(_why(ended.returncode, os.fsdecode(ended.stderr)))
    return os.fsdecode(ended.stdout).removesuffix("\n")


def _environment(repository: Path | None) -> dict[str, str]:
    # Set for a hook, these would turn every question to another repository.
    rest = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**rest, **_SETTINGS, **({} if repository is None else {"GIT_COMMON_DIR": str(repository)})}


async def _end_group(process: trio.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with trio.move_on_after(GRACE):
            await process.wait()
        os.killpg(process.pid, signal.SIGKILL)


def _why(status: int, said: str) -> str:
    if status < 0:
        return f"git was ended by {signal.Signals(-status).name}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # What follows the first complaint is advice, or what came of it.
    complaints = [line for line in lines if line.startswith(("fatal:", "error:"))]
    words = complaints[:1] or lines[-1:] or [f"it ended with status {status}"]
    return f"git says: {words[0].removeprefix('fatal:').removeprefix('error:').strip()}"
