"""The Bash tool: a command, its output and its exit code."""

from pathlib import Path
from typing import ClassVar

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.schema import described
from coterie.agents.tools.tool import Access, ToolResult, Workspace, tool_description
from coterie.agents.tools.worker_process import BoundedOutput, command_environment
from coterie.agents.tools.workspace.shell_process import run_shell
from coterie.agents.tools.workspace.working_directory import open_directory_report

DEFAULT_TIMEOUT = 120.0
LONGEST_TIMEOUT = 600.0
KEPT = 2_000_000
"""Characters of the output that are kept at its beginning, and again at its end."""
BASH_RESULT_CAP = 30_000
"""Characters of a result that stay in the conversation."""
GRACE = 2.0


@attrs.frozen(kw_only=True)
class BashInput:
    """What to run, and how long to wait for it."""

    command: str = attrs.field(metadata=described("The command, as one would type it."))
    timeout: float = attrs.field(
        default=DEFAULT_TIMEOUT,
        metadata=described(f"Seconds after which the command is killed, at most {LONGEST_TIMEOUT:g}."),
    )
    description: str | None = attrs.field(
        default=None, metadata=described("What the command does, in five to ten words, for the people who watch.")
    )
    run_in_background: bool = attrs.field(
        default=False, metadata=described("Start the command as a job and do not wait for it; it has no time limit.")
    )


@attrs.frozen(kw_only=True)
class Bash:
    """Runs commands, each in a shell of its own that starts where the last one ended."""

    name: ClassVar = "Bash"
    description: ClassVar = tool_description("bash")
    input_type: ClassVar = BashInput
    access: ClassVar[Access] = "run"
    is_clearable: ClassVar = True
    result_cap: ClassVar[int | None] = BASH_RESULT_CAP

    grace: float = GRACE
    """Seconds between asking a command to end and killing it."""

    def paths_affected(self, arguments: BashInput, workspace: Workspace) -> list[Path]:  # noqa: ARG002 - the interface of every tool
        """The directory it starts in; what a command touches cannot be told before it runs."""
        return [workspace.shell.directory]

    async def run(self, arguments: BashInput, workspace: Workspace) -> ToolResult:
        """The output, and how the command ended unless it went well; for a job, its id.

        When the time is up or the call is cancelled, all processes of the command are ended first, and the next
        command starts where this one did.
        """
        timeout = arguments.timeout
        if not 0 < timeout <= LONGEST_TIMEOUT:
            raise ToolFailed(f"timeout is {timeout:g}, but must be over 0 and at most {LONGEST_TIMEOUT:g} seconds")
        moved = workspace.shell.enter()
        if arguments.run_in_background:
            return _result(await _start_job(arguments.command, workspace), moved)
        output = BoundedOutput(KEPT)
        with trio.move_on_after(timeout):
            status, strayed = await self._run_command(arguments.command, workspace, output)
            held = workspace.sandbox.description if status and workspace.sandbox is not None else None
            return _result(output.finish(), moved, strayed, held, failure=f"[exit code {status}]" if status else None)
        return _result(output.finish(), moved, failure=f"[timed out after {timeout:g} s]")

    async def _run_command(self, command: str, workspace: Workspace, output: BoundedOutput) -> tuple[int, str | None]:
        """The exit code, and a word about the directory if the next command cannot start where this one ended."""
        shell, sandbox = workspace.shell, workspace.sandbox
        place = workspace.scratch if sandbox is None else sandbox.temporary
        with open_directory_report(place, command_environment(workspace.environment)) as report:
            status = await run_shell(
                command, shell.directory, report.environment, heard=output.add, grace=self.grace, sandbox=sandbox
            )
            return status, shell.update_directory(report.read() or shell.directory)


async def _start_job(command: str, workspace: Workspace) -> str:
    if workspace.jobs is None:
        raise ToolFailed("Commands cannot run in the background here. Run it without run_in_background.")
    job = await workspace.jobs.start(
        command, workspace.shell.directory, command_environment(workspace.environment), workspace.sandbox
    )
    return (
        f"Started job {job.id}. BashOutput shows what it prints, KillBash ends it. "
        f"All it prints is in {job.output.path}."
    )


def _result(output: str, *notes: str | None, failure: str | None = None) -> ToolResult:
    lines = [line for line in (output.rstrip("\n"), *notes, failure) if line]
    return ToolResult(text="\n".join(lines), is_error=failure is not None)
