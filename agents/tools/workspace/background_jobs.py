"""Background jobs: commands that run concurrently with the agent's turns, with their output in files."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.sandbox.sandbox import Sandbox
from coterie.agents.tools.workspace.shell_process import run_shell
from coterie.agents.tools.workspace.working_directory import printable_name
from coterie.files import Appender
from coterie.suggestions import did_you_mean

MAX_RUNNING = 10
MAX_OUTPUT = 64 * 1024 * 1024
"""Maximum bytes of a job's output that are kept."""
TITLE = 80
"""Maximum characters of a job's title."""
JobTask = Callable[[], Awaitable[None]]


@attrs.define(eq=False)
class JobOutput:
    """Output of a job in a file of limited size."""

    path: Path
    """File with the output of the job; kept after the job has ended."""
    size: int = attrs.field(default=0, init=False)
    """Bytes in the file."""
    loss: str | None = attrs.field(default=None, init=False)
    """Note for the model if a part of the output was not kept."""

    def open_log(self) -> Appender:
        """Open the file for `append`. Raises `ToolFailed` if it cannot be created."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return Appender.open(self.path)
        except OSError as exc:
            raise ToolFailed(f"The command could not be started: {exc}") from exc

    def append(self, log: Appender, chunk: bytes | bytearray) -> None:
        """Append *chunk* to the file up to the size limit; a disk error loses output but does not fail the job."""
        if self.loss is not None:
            return
        kept = bytes(chunk[: MAX_OUTPUT - self.size])
        try:
            log.append(kept)
        except OSError as exc:
            self.loss = f"[later output was not kept: {exc.strerror}]"
            return
        self.size += len(kept)
        if len(kept) < len(chunk):
            self.loss = f"[later output was not kept: over {MAX_OUTPUT // 1024**2} MB]"

    def read_sync(self, start: int) -> bytes:
        """Read the kept output from byte *start* on. Raises `OSError`."""
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(self.size - start)


@attrs.define(eq=False)
class BackgroundJob:
    """One command that runs in the background."""

    id: str
    command: str
    output: JobOutput
    shown: int = attrs.field(default=0, init=False)
    """Bytes of the output that were shown to the model."""
    is_known_ended: bool = attrs.field(default=False, init=False)
    """True if the model has been notified that the job has ended."""
    _exit_code: int | None = attrs.field(default=None, init=False)
    _refusal: ToolFailed | None = attrs.field(default=None, init=False)
    _started: trio.Event = attrs.field(factory=trio.Event, init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    @property
    def is_running(self) -> bool:
        """True if the job has not ended yet."""
        return not self._ended.is_set()

    @property
    def status(self) -> str:
        """Status for the model: running, killed, or ended with an exit code."""
        if self.is_running:
            return "running"
        return "killed" if self._exit_code is None else f"ended with exit code {self._exit_code}"

    @property
    def title(self) -> str:
        """The command on one line, shortened to `TITLE` characters."""
        line = printable_name(" ".join(self.command.split()))
        return line if len(line) <= TITLE else f"{line[: TITLE - 4]} ..."

    async def wait_started(self) -> None:
        """Return when the command has started. Raises `ToolFailed` if it could not be started."""
        await self._started.wait()
        if self._refusal is not None:
            raise self._refusal

    async def wait_ended(self) -> None:
        """Return when the job has ended for any reason."""
        await self._ended.wait()

    async def end(self) -> None:
        """Terminate the job, then kill it; return when it has ended. Cancelling this call does not stop that."""
        self._scope.cancel()
        await self.wait_ended()

    async def run(
        self, directory: Path, environment: Mapping[str, str], grace: float, sandbox: Sandbox | None = None
    ) -> None:
        """Run the command until it is reaped; its child processes end with it."""
        try:
            with self.output.open_log() as log, self._scope:
                self._exit_code = await run_shell(
                    self.command,
                    directory,
                    environment,
                    on_output=partial(self.output.append, log),
                    grace=grace,
                    on_start=self._started.set,
                    ends_group=True,
                    sandbox=sandbox,
                )
        except ToolFailed as exc:
            self._refusal = exc
        finally:
            self._started.set()
            self._ended.set()


@attrs.define(eq=False)
class BackgroundJobs:
    """The jobs of one agent. Owned by the task that runs the agent's tools."""

    _folder: Path
    _tasks: trio.MemorySendChannel[tuple[str, JobTask]]
    """Channel to the task that runs the jobs; takes the id of a job and the function that runs it."""
    _grace: float
    _numbers: Iterator[int]
    by_id: dict[str, BackgroundJob] = attrs.field(factory=dict, init=False)
    """All jobs of this run, running or ended."""

    async def start(
        self, command: str, directory: Path, environment: Mapping[str, str], sandbox: Sandbox | None = None
    ) -> BackgroundJob:
        """Start *command* in *directory*; return once it runs. Raises `ToolFailed` if it cannot be started."""
        running = [job for job in self.by_id.values() if job.is_running]
        if len(running) >= MAX_RUNNING:
            raise ToolFailed(
                f"{MAX_RUNNING} background jobs are running, which is the limit: end one with KillBash, or wait. "
                f"Running jobs: {', '.join(job.id for job in running)}."
            )
        name = f"bash_{next(self._numbers)}"
        job = BackgroundJob(id=name, command=command, output=JobOutput(self._folder / f"{name}.out"))
        await self._tasks.send((name, partial(job.run, directory, environment, self._grace, sandbox)))
        await job.wait_started()
        self.by_id[name] = job
        return job

    def take_finished(self) -> list[str]:
        """Return one line for each ended job of which the model has not been notified, and mark it as notified."""
        ended = [job for job in self.by_id.values() if not job.is_running and not job.is_known_ended]
        for job in ended:
            job.is_known_ended = True
        return [f"Background job {job.id} {job.status}: {job.title}" for job in ended]


@asynccontextmanager
async def open_jobs(folder: Path, *, grace: float = 2.0) -> AsyncIterator[BackgroundJobs]:
    """Provide background jobs until the block ends, with their output in *folder*.

    At the end of the block, each job gets SIGTERM, and SIGKILL *grace* seconds later; the block waits for all of them.
    """
    send, receive = trio.open_memory_channel[tuple[str, JobTask]](0)
    async with send, trio.open_nursery() as nursery:
        nursery.start_soon(_run_jobs, receive)
        try:
            yield BackgroundJobs(folder, send, grace, itertools.count(_last_number(folder) + 1))
        finally:
            nursery.cancel_scope.cancel()


def find_job(jobs: BackgroundJobs | None, name: str) -> BackgroundJob:
    """Return the job *name*; *jobs* is None if the workspace has no jobs. Raises `ToolFailed` if it does not exist."""
    if jobs is None:
        raise ToolFailed("Background jobs are not available here.")
    if name not in jobs.by_id:
        raise ToolFailed(f"There is no job {name!r} in this run: {did_you_mean(name, jobs.by_id)}")
    return jobs.by_id[name]


async def _run_jobs(tasks: trio.MemoryReceiveChannel[tuple[str, JobTask]]) -> None:
    async with tasks, trio.open_nursery() as nursery:
        async for name, run in tasks:
            nursery.start_soon(run, name=name)


def _last_number(folder: Path) -> int:
    """Return the highest job number of earlier runs, whose ids are still in the conversation."""
    names = (path.stem.removeprefix("bash_") for path in folder.glob("bash_*.out"))
    return max((int(name) for name in names if name.isdecimal()), default=0)
