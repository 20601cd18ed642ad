"""The BashOutput and KillBash tools for background jobs."""

import codecs
import json
import re
import warnings
from pathlib import Path
from typing import Annotated, ClassVar

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.shell.bash import BASH_RESULT_CAP, KEPT
from coterie.agents.tools.tool import Access, Tool, ToolResult, Workspace
from coterie.agents.tools.worker_process import BoundedOutput, run_worker
from coterie.agents.tools.workspace.background_jobs import find_job

FILTER_LIMIT = 10.0
"""Seconds after which a filter is stopped, because some regular expressions take exponential time."""
WORKER = Path(__file__).with_name("line_filter_worker.py")


@attrs.frozen(kw_only=True)
class BashOutputInput:
    """Arguments of the BashOutput tool."""

    bash_id: Annotated[str, "Id of the job, as returned by Bash."]
    filter: Annotated[
        str | None, "Python regular expression: only new lines that match are shown; the other new lines are discarded."
    ] = None


@attrs.frozen(kw_only=True)
class BashOutput(Tool):
    """Tool that shows the new output of a job. It affects no path, because a call cannot name a file."""

    name: ClassVar = "BashOutput"
    input_type: ClassVar = BashOutputInput
    access: ClassVar[Access] = "read"
    result_cap: ClassVar[int | None] = BASH_RESULT_CAP

    filter_limit: float = FILTER_LIMIT

    async def run(self, arguments: BashOutputInput, workspace: Workspace) -> ToolResult:
        """Return the new output, followed by the status of the job.

        Output counts as shown only if the call succeeds: after a failure or cancellation the next call returns it.
        """
        job = find_job(workspace.jobs, arguments.bash_id)
        # Taken before the output is read, so that a job reported as ended has no unread output.
        has_ended, status, start = not job.is_running, job.status, job.shown
        try:
            content = await trio.to_thread.run_sync(job.output.read_sync, start, abandon_on_cancel=True)
        except OSError as exc:
            raise ToolFailed(f"The output of {job.id} cannot be read: {exc.strerror}") from exc
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
            raise ToolFailed(f"{pattern!r} is not a valid Python regular expression: {exc}") from exc
        with trio.move_on_after(self.filter_limit):
            return await run_worker(WORKER, json.dumps(pattern).encode() + b"\n" + content)
        raise ToolFailed(
            f"The filter was stopped after {self.filter_limit:g} s. Use a simpler expression: nested repetition, as in "
            "(a+)+, can take exponential time."
        )


def _without_partial_character(content: bytes) -> bytes:
    """Remove an incomplete UTF-8 character at the end of *content*."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(content[-4:])
    pending, _ = decoder.getstate()
    return content.removesuffix(pending)


@attrs.frozen(kw_only=True)
class KillBashInput:
    """Arguments of the KillBash tool."""

    bash_id: Annotated[str, "Id of the job, as returned by Bash."]


class KillBash(Tool):
    """Tool that ends a job. Its access is "read", because an agent may always end a job that it has started."""

    name: ClassVar = "KillBash"
    input_type: ClassVar = KillBashInput
    access: ClassVar[Access] = "read"

    async def run(self, arguments: KillBashInput, workspace: Workspace) -> ToolResult:
        """End the job and its child processes, and return its status. Cancelling the call does not stop that."""
        job = find_job(workspace.jobs, arguments.bash_id)
        already = "already " if not job.is_running else ""
        await job.end()
        job.is_known_ended = True
        return ToolResult(text=f"{job.id}: {already}{job.status}")
