"""The BashOutput and KillBash tools for background jobs."""

import codecs
import json
import re
import warnings
from pathlib import Path
from typing import ClassVar

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.schema import described
from coterie.agents.tools.shell.bash import BASH_RESULT_CAP, KEPT
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace, tool_description
from coterie.agents.tools.worker_process import BoundedOutput, run_worker
from coterie.agents.tools.workspace.background_jobs import BackgroundJob, find_job

FILTER_LIMIT = 10.0
"""Seconds after which a filter is given up; some expressions would take years."""
WORKER = Path(__file__).with_name("line_filter_worker.py")


@attrs.frozen(kw_only=True)
class BashOutputInput:
    """Which job, and which of its lines."""

    bash_id: str = attrs.field(metadata=described("The job, as Bash named it when it was started."))
    filter: str | None = attrs.field(
        default=None,
        metadata=described(
            "A regular expression, as Python writes them: only new lines that match are shown, and the others never."
        ),
    )


@attrs.frozen(kw_only=True)
class BashOutput:
    """Shows the new output of a job. Reads no file that a call could name, so it touches none."""

    name: ClassVar = "BashOutput"
    description: ClassVar = tool_description("bash_output")
    input_type: ClassVar = BashOutputInput
    access: ClassVar[Access] = "read"
    is_clearable: ClassVar = False
    result_cap: ClassVar[int | None] = BASH_RESULT_CAP

    filter_limit: float = FILTER_LIMIT

    def paths_affected(self, _arguments: BashOutputInput, _workspace: Workspace) -> list[Path]:
        """Nothing."""
        return []

    async def run(self, arguments: BashOutputInput, workspace: Workspace) -> ToolResult:
        """What is new, and the job's status last. What a call that failed or was cancelled would have shown is new
        for the next one.
        """
        job = find_job(workspace.jobs, arguments.bash_id)
        # Taken before the output is read: what is then said to have ended has nothing more to say.
        has_ended, status, start = not job.is_running, job.status, job.shown
        content = await _read(job, start)
        if not has_ended:
            content = _whole_characters(content)
        shown = content if arguments.filter is None else await self._filtered(content, arguments.filter)
        job.shown = start + len(content)
        job.is_known_ended = has_ended
        return ToolResult(text=_text(shown, [job.output.loss, f"[{job.id}: {status}]"]))

    async def _filtered(self, content: bytes, pattern: str) -> bytes:
        _check(pattern)
        with trio.move_on_after(self.filter_limit):
            return await run_worker(WORKER, json.dumps(pattern).encode() + b"\n" + content)
        raise ToolFailed(
            f"The filter was not done after {self.filter_limit:g} s. Use a simpler expression: repetition inside "
            "repetition, as in (a+)+, can take forever."
        )


async def _read(job: BackgroundJob, start: int) -> bytes:
    try:
        return await trio.to_thread.run_sync(job.output.read_sync, start, abandon_on_cancel=True)
    except OSError as exc:
        raise ToolFailed(f"The output of {job.id} cannot be read: {exc.strerror}") from exc


def _whole_characters(content: bytes) -> bytes:
    """*content* without the beginning of a character of which the rest has not been printed yet."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(content[-4:])
    pending, _ = decoder.getstate()
    return content.removesuffix(pending)


def _check(pattern: str) -> None:
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as exc:
        raise ToolFailed(f"{pattern!r} is not a regular expression that Python understands: {exc}") from exc


def _text(content: bytes, notes: list[str | None]) -> str:
    capped = BoundedOutput(KEPT)
    capped.add(content)
    return "\n".join(line for line in (capped.finish().rstrip("\n"), *notes) if line)


@attrs.frozen(kw_only=True)
class KillBashInput:
    """Which job."""

    bash_id: str = attrs.field(metadata=described("The job, as Bash named it when it was started."))


class KillBash:
    """Ends a job. Whoever was allowed to start it may end it, so a call needs no more than one that reads."""

    name: ClassVar = "KillBash"
    description: ClassVar = tool_description("kill_bash")
    input_type: ClassVar = KillBashInput
    access: ClassVar[Access] = "read"
    is_clearable: ClassVar = False
    result_cap: ClassVar[int | None] = RESULT_CAP

    def paths_affected(self, _arguments: KillBashInput, _workspace: Workspace) -> list[Path]:
        """Nothing."""
        return []

    async def run(self, arguments: KillBashInput, workspace: Workspace) -> ToolResult:
        """What has become of the job; it and all it started have ended. A cancelled call ends it nevertheless."""
        job = find_job(workspace.jobs, arguments.bash_id)
        already = "already " if not job.is_running else ""
        await job.end()
        job.is_known_ended = True
        return ToolResult(text=f"{job.id}: {already}{job.status}")
