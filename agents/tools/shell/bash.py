"""The tool Bash, which runs shell commands, and the tools BashOutput and KillBash for its background jobs."""

import codecs
import json
import re
import warnings
from pathlib import Path
from typing import Annotated

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.tool import BuiltInTool, ToolResult, Workspace
from coterie.agents.tools.worker_process import BoundedOutput, command_environment, run_worker
from coterie.agents.tools.workspace.background_jobs import find_job
from coterie.agents.tools.workspace.shell_process import run_shell
from coterie.agents.tools.workspace.working_directory import open_directory_report

DEFAULT_TIMEOUT = 120.0
MAX_TIMEOUT = 600.0
KEPT = 2_000_000
"""Number of characters that are kept from the beginning of an output, and again from its end."""
BASH_RESULT_CAP = 30_000
"""Nominal limit of a result in characters. The settings contain the limit over which a result goes to a file."""


@attrs.frozen(kw_only=True)
class BashInput:
    """Arguments of the Bash tool, which runs a shell command."""

    command: Annotated[str, "The shell command."]
    timeout: Annotated[float, f"Seconds after which the command is killed, at most {MAX_TIMEOUT:g}."] = DEFAULT_TIMEOUT
    description: Annotated[str | None, "What the command does, in five to ten words, for the user."] = None
    run_in_background: Annotated[bool, "Start the command as a job and do not wait for it; it has no time limit."] = (
        False
    )


@attrs.frozen(kw_only=True)
class Bash(BuiltInTool, name="Bash", input_type=BashInput, access="run", is_clearable=True, result_cap=BASH_RESULT_CAP):
    """Tool that runs each command in a new shell, in the directory where the previous command ended."""

    grace: float = 2.0
    """Seconds between SIGTERM and SIGKILL when a command is killed because of a timeout or a cancellation."""

    def paths_affected(self, _arguments: BashInput, workspace: Workspace) -> list[Path]:
        """Return only the working directory, because the paths that a command affects are unknown before it runs."""
        return [workspace.shell.directory]

    async def run(self, arguments: BashInput, workspace: Workspace) -> ToolResult:
        """Run the command and return its output, with the exit code if it fails; of a background job, return the id.

        On timeout or cancellation all processes of the command are killed first, and the working directory does not
        change. Raises `ToolFailed` if the command cannot be started.
        """
        timeout = arguments.timeout
        if not 0 < timeout <= MAX_TIMEOUT:
            raise ToolFailed(f"timeout is {timeout:g}; give a number of seconds over 0 and up to {MAX_TIMEOUT:g}")
        moved = workspace.shell.enter()
        if arguments.run_in_background:
            return _result(await _start_job(arguments.command, workspace), moved)
        output = BoundedOutput(KEPT)
        with trio.move_on_after(timeout):
            status, refused = await self._run_command(arguments.command, workspace, output)
            confined = workspace.sandbox.description if status and workspace.sandbox is not None else None
            failure = f"[exit code {status}]" if status else None
            return _result(output.finish(), moved, refused, confined, failure=failure)
        return _result(output.finish(), moved, failure=f"[timed out after {timeout:g} s]")

    async def _run_command(self, command: str, workspace: Workspace, output: BoundedOutput) -> tuple[int, str | None]:
        """Run *command*; return the exit code, and a note if its last directory cannot be used by the next command."""
        shell, sandbox = workspace.shell, workspace.sandbox
        temporary = workspace.scratch if sandbox is None else sandbox.temporary
        with open_directory_report(temporary, command_environment(workspace.environment)) as report:
            status = await run_shell(
                command, shell.directory, report.environment, on_output=output.add, grace=self.grace, sandbox=sandbox
            )
            return status, shell.update_directory(report.read() or shell.directory)


async def _start_job(command: str, workspace: Workspace) -> str:
    if workspace.jobs is None:
        raise ToolFailed("Background jobs are not available here. Run the command without run_in_background.")
    job = await workspace.jobs.start(
        command, workspace.shell.directory, command_environment(workspace.environment), workspace.sandbox
    )
    return f"Started job {job.id}. BashOutput shows its output, KillBash ends it. Output file: {job.output.path}"


def _result(output: str, *notes: str | None, failure: str | None = None) -> ToolResult:
    lines = [line for line in (output.rstrip("\n"), *notes, failure) if line]
    return ToolResult(text="\n".join(lines), is_error=failure is not None)


@attrs.frozen(kw_only=True)
class BashOutputInput:
    """Arguments of the BashOutput tool, which returns the new output of a background job."""

    bash_id: Annotated[str, "Id of the job, as returned by Bash."]
    filter: Annotated[
        str | None, "Python regular expression: only new lines that match are shown; the other new lines are discarded."
    ] = None


@attrs.frozen(kw_only=True)
class BashOutput(BuiltInTool, name="BashOutput", input_type=BashOutputInput, access="read", result_cap=BASH_RESULT_CAP):
    """Tool that returns the new output of a background job. No path rule applies, as a call cannot name a file."""

    filter_limit: float = 10.0
    """Maximum seconds for filtering the lines, because some regular expressions take exponential time."""

    async def run(self, arguments: BashOutputInput, workspace: Workspace) -> ToolResult:
        """Return the output of the job since the last call, filtered if requested, followed by the status of the job.

        Output counts as shown only if the call succeeds: after a failure or cancellation the next call returns it.
        """
        job = find_job(workspace.jobs, arguments.bash_id)
        # Taken before the output is read, so that a job reported as ended has no unread output.
        has_ended, status, start = not job.is_running, job.status, job.shown
        try:
            content = await trio.to_thread.run_sync(job.output.read_sync, start, abandon_on_cancel=True)
        except OSError as exc:
            raise ToolFailed(f"The output of {job.id} cannot be read: {exc.strerror}. End it with KillBash.") from exc
        if not has_ended:
            content = _without_partial_character(content)
        shown = content if arguments.filter is None else await self._filter(content, arguments.filter)
        job.shown = start + len(content)
        job.is_known_ended = has_ended
        capped = BoundedOutput(KEPT)
        capped.add(shown)
        lines = (capped.finish().rstrip("\n"), job.output.loss, f"[{job.id}: {status}]")
        return ToolResult(text="\n".join(filter(None, lines)))

    async def _filter(self, content: bytes, pattern: str) -> bytes:
        try:
            with warnings.catch_warnings(action="ignore"):
                re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as exc:
            raise ToolFailed(f"The filter {pattern!r} is no valid regular expression. Correct it: {exc}") from exc
        with trio.move_on_after(self.filter_limit):
            return await run_worker("shell/line_filter_worker.py", json.dumps(pattern).encode() + b"\n" + content)
        raise ToolFailed(
            f"The filter was stopped after {self.filter_limit:g} s. Use a simpler expression: nested repetition, as in "
            "(a+)+, can take exponential time."
        )


def _without_partial_character(content: bytes) -> bytes:
    """Return *content* without an incomplete UTF-8 character at its end, which the next read completes."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(content[-4:])
    pending, _ = decoder.getstate()
    return content.removesuffix(pending)


@attrs.frozen(kw_only=True)
class KillBashInput:
    """Arguments of the KillBash tool, which ends a background job."""

    bash_id: Annotated[str, "Id of the job, as returned by Bash."]


class KillBash(BuiltInTool, name="KillBash", input_type=KillBashInput, access="read"):
    """Tool that ends a background job. It needs no permission, because an agent may end each job it has started."""

    async def run(self, arguments: KillBashInput, workspace: Workspace) -> ToolResult:
        """Kill all processes of the job and return its status. If this call is cancelled, the job ends nevertheless."""
        job = find_job(workspace.jobs, arguments.bash_id)
        already = "already " if not job.is_running else ""
        await job.end()
        job.is_known_ended = True
        return ToolResult(text=f"{job.id}: {already}{job.status}")
