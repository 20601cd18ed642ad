"""Background jobs: shell commands that run during later turns of an agent, with their output in files."""

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
"""Maximum bytes of the output of one job that are stored; later output is lost."""
TITLE = 80
"""Maximum characters of the title of a job: its command on one line."""
JobTask = Callable[[], Awaitable[None]]


@attrs.define(eq=False)
class JobOutput:
    """Output of a background job, stored in a file of at most MAX_OUTPUT bytes."""

    path: Path
    """File with the output of the job, which is not deleted when the job ends."""
    size: int = attrs.field(default=0, init=False)
    """Number of bytes written to the file so far."""
    loss: str | None = attrs.field(default=None, init=False)
    """Note for the model that later output was not stored, with the reason; None if all output was stored."""

    def open_log(self) -> Appender:
        """Create the file and return a writer to pass to `append`. Raises `ToolFailed` if that fails."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return Appender.open(self.path)
        except OSError as exc:
            raise ToolFailed(f"The command could not be started: {exc}. Tell the user about this error.") from exc

    def append(self, log: Appender, chunk: bytes | bytearray) -> None:
        """Append *chunk* to the file up to MAX_OUTPUT; a disk error is noted in `loss` and does not fail the job."""
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
        """Return the stored output from byte *start* on; blocks on the disk. Raises `OSError`."""
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(self.size - start)


@attrs.define(eq=False)
class BackgroundJob:
    """One shell command that runs in the background, or has run: its process, status and output."""

    id: str
    command: str
    output: JobOutput
    shown: int = attrs.field(default=0, init=False)
    """Number of bytes of the output that BashOutput has already shown to the model."""
    is_known_ended: bool = attrs.field(default=False, init=False)
    """True if the model knows, by a notice, BashOutput or KillBash, that the job has ended."""
    _exit_code: int | None = attrs.field(default=None, init=False)
    _refusal: ToolFailed | None = attrs.field(default=None, init=False)
    _started: trio.Event = attrs.field(factory=trio.Event, init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    @property
    def is_running(self) -> bool:
        """True until the command has ended, or could not be started."""
        return not self._ended.is_set()

    @property
    def status(self) -> str:
        """Status text for the model: `running`, `killed`, or `ended with exit code` and the code."""
        if self.is_running:
            return "running"
        return "killed" if self._exit_code is None else f"ended with exit code {self._exit_code}"

    @property
    def title(self) -> str:
        """Command of the job on one line, shortened to TITLE characters."""
        line = printable_name(" ".join(self.command.split()))
        return line if len(line) <= TITLE else f"{line[: TITLE - 4]} ..."

    async def wait_started(self) -> None:
        """Wait until the command has started. Raises `ToolFailed` if it could not be started."""
        await self._started.wait()
        if self._refusal is not None:
            raise self._refusal

    async def wait_ended(self) -> None:
        """Wait until the job has ended, for any reason."""
        await self._ended.wait()

    async def end(self) -> None:
        """Send SIGTERM, later SIGKILL, and wait until the job has ended. The job ends even if the wait is cancelled."""
        self._scope.cancel()
        await self.wait_ended()

    async def run(
        self, directory: Path, environment: Mapping[str, str], grace: float, sandbox: Sandbox | None = None
    ) -> None:
        """Run the command in *directory* and wait until it has ended; then kill the processes that it has started."""
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
    """Background jobs of one agent, running and ended. Used only in the thread of the agent's event loop."""

    _folder: Path
    _tasks: trio.MemorySendChannel[tuple[str, JobTask]]
    """Channel to the trio task that runs the jobs, for pairs of a job id and the function that runs the job."""
    _grace: float
    _numbers: Iterator[int]
    by_id: dict[str, BackgroundJob] = attrs.field(factory=dict, init=False)
    """Jobs that this process of the agent has started, running or ended, by id."""

    async def start(
        self, command: str, directory: Path, environment: Mapping[str, str], sandbox: Sandbox | None = None
    ) -> BackgroundJob:
        """Start *command* in *directory* as a job; return once it runs. Raises `ToolFailed` if it cannot be started."""
        running = [job for job in self.by_id.values() if job.is_running]
        if len(running) >= MAX_RUNNING:
            raise ToolFailed(
                f"{MAX_RUNNING} background jobs are running, which is the limit. End one with KillBash, or wait. "
                f"Running jobs: {', '.join(job.id for job in running)}."
            )
        name = f"bash_{next(self._numbers)}"
        job = BackgroundJob(id=name, command=command, output=JobOutput(self._folder / f"{name}.out"))
        await self._tasks.send((name, partial(job.run, directory, environment, self._grace, sandbox)))
        await job.wait_started()
        self.by_id[name] = job
        return job

    def take_finished(self) -> list[str]:
        """Return a line for the model on each ended job whose end it does not know yet; mark this end as known."""
        ended = [job for job in self.by_id.values() if not job.is_running and not job.is_known_ended]
        for job in ended:
            job.is_known_ended = True
        return [f"Background job {job.id} {job.status}: {job.title}" for job in ended]


@asynccontextmanager
async def open_jobs(folder: Path, *, grace: float = 2.0) -> AsyncIterator[BackgroundJobs]:
    """Provide an agent with background jobs until the block ends; files with their output are created in *folder*.

    At the end of the block, each job gets SIGTERM, and SIGKILL *grace* seconds later; the block waits for all jobs.
    """
    send, receive = trio.open_memory_channel[tuple[str, JobTask]](0)
    async with send, trio.open_nursery() as nursery:
        nursery.start_soon(_run_jobs, receive)
        try:
            yield BackgroundJobs(folder, send, grace, itertools.count(_last_number(folder) + 1))
        finally:
            nursery.cancel_scope.cancel()


def find_job(jobs: BackgroundJobs | None, name: str) -> BackgroundJob:
    """Return the job with the id *name*. Raises `ToolFailed` if it does not exist, or if *jobs* is None."""
    if jobs is None:
        raise ToolFailed("This agent cannot have background jobs. Run commands with Bash, without run_in_background.")
    if name not in jobs.by_id:
        raise ToolFailed(f"There is no job {name!r} in this run; {did_you_mean(name, jobs.by_id)}")
    return jobs.by_id[name]


async def _run_jobs(tasks: trio.MemoryReceiveChannel[tuple[str, JobTask]]) -> None:
    async with tasks, trio.open_nursery() as nursery:
        async for name, run in tasks:
            nursery.start_soon(run, name=name)


def _last_number(folder: Path) -> int:
    """Return the highest job number with an output file in *folder*, so that no id of an earlier run is used again."""
    names = (path.stem.removeprefix("bash_") for path in folder.glob("bash_*.out"))
    return max((int(name) for name in names if name.isdecimal()), default=0)
