"""Background jobs: commands that run beside the agent's turns, with their output in files."""

import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
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

MOST_RUNNING = 10
LARGEST_OUTPUT = 64 * 1024 * 1024
"""Bytes of a job's output that are kept."""
GRACE = 2.0
TITLE = 80
"""Characters of a command by which it is known again."""


@attrs.define(eq=False)
class JobOutput:
    """What a job prints, in a file that does not grow without end."""

    path: Path
    """It stays when the job has ended."""
    size: int = attrs.field(default=0, init=False)
    """Bytes that are kept so far."""
    loss: str | None = attrs.field(default=None, init=False)
    """Why there is more than is kept, in words for the model."""

    def open_log(self) -> Appender:
        """The file, for `append`. Raises `ToolFailed` if there can be none."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return Appender.open(self.path)
        except OSError as exc:
            raise ToolFailed(f"The command could not be started: {exc}") from exc

    def append(self, log: Appender, chunk: bytes | bytearray) -> None:
        """Put *chunk* into the file, as far as there is room. A disk that refuses is a loss, not the job's failure."""
        if self.loss is not None:
            return
        kept = bytes(chunk[: LARGEST_OUTPUT - self.size])
        try:
            log.append(kept)
        except OSError as exc:
            self.loss = f"[what it printed next was not kept: {exc.strerror}]"
            return
        self.size += len(kept)
        if len(kept) < len(chunk):
            self.loss = f"[what it printed next was not kept: over {LARGEST_OUTPUT // 1024**2} MB]"

    def read_sync(self, start: int) -> bytes:
        """What is kept from byte *start* on. Raises `OSError`."""
        with self.path.open("rb") as file:
            file.seek(start)
            return file.read(self.size - start)


@attrs.define(eq=False)
class BackgroundJob:
    """One command in the background."""

    id: str
    command: str
    output: JobOutput
    shown: int = attrs.field(default=0, init=False)
    """Bytes of the output that the model has been given."""
    is_known_ended: bool = attrs.field(default=False, init=False)
    """Whether the model has been told that it has ended."""
    _exit_code: int | None = attrs.field(default=None, init=False)
    _refusal: ToolFailed | None = attrs.field(default=None, init=False)
    _begun: trio.Event = attrs.field(factory=trio.Event, init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return not self._ended.is_set()

    @property
    def status(self) -> str:
        """What has become of it, in words for the model."""
        if self.is_running:
            return "running"
        return "killed" if self._exit_code is None else f"ended with exit code {self._exit_code}"

    @property
    def title(self) -> str:
        """The command on one line, cut to what it takes to know it again."""
        line = printable_name(" ".join(self.command.split()))
        return line if len(line) <= TITLE else f"{line[: TITLE - 4]} ..."

    async def wait_started(self) -> None:
        """Return when the command runs. Raises `ToolFailed` if it could not be started."""
        await self._begun.wait()
        if self._refusal is not None:
            raise self._refusal

    async def wait_ended(self) -> None:
        """Return when it has ended, by itself or otherwise."""
        await self._ended.wait()

    async def end(self) -> None:
        """Ask it to end, wait, kill it; returns when it has ended. When cancelled, it is ended nevertheless."""
        self._scope.cancel()
        await self.wait_ended()

    async def run(
        self, directory: Path, environment: Mapping[str, str], grace: float, sandbox: Sandbox | None = None
    ) -> None:
        """Run the command from start to reap, and whatever it put in the background with it."""
        try:
            with self.output.open_log() as log, self._scope:
                self._exit_code = await run_shell(
                    self.command,
                    directory,
                    environment,
                    heard=partial(self.output.append, log),
                    grace=grace,
                    begun=self._begun.set,
                    ends_group=True,
                    sandbox=sandbox,
                )
        except ToolFailed as exc:
            self._refusal = exc
        finally:
            self._begun.set()
            self._ended.set()


@attrs.frozen(kw_only=True)
class _StartRequest:
    """A job for the task that owns the jobs."""

    job: BackgroundJob
    directory: Path
    environment: Mapping[str, str]
    sandbox: Sandbox | None


@attrs.define(eq=False)
class BackgroundJobs:
    """The jobs of one agent. Belongs to the task that runs the agent's tools."""

    _folder: Path
    _orders: trio.MemorySendChannel[_StartRequest]
    _numbers: Iterator[int]
    _jobs: dict[str, BackgroundJob] = attrs.field(factory=dict, init=False)

    async def start(
        self, command: str, directory: Path, environment: Mapping[str, str], sandbox: Sandbox | None = None
    ) -> BackgroundJob:
        """Start *command* in *directory*; returns when it runs. Raises `ToolFailed` if it cannot be started."""
        running = [job for job in self._jobs.values() if job.is_running]
        if len(running) >= MOST_RUNNING:
            raise ToolFailed(
                f"{MOST_RUNNING} jobs are running, and there can be no more: end one with KillBash, or wait. "
                f"There is {', '.join(job.id for job in running)}."
            )
        name = f"bash_{next(self._numbers)}"
        job = BackgroundJob(id=name, command=command, output=JobOutput(self._folder / f"{name}.out"))
        await self._orders.send(_StartRequest(job=job, directory=directory, environment=environment, sandbox=sandbox))
        await job.wait_started()
        self._jobs[name] = job
        return job

    def find(self, name: str) -> BackgroundJob:
        """The job *name*, which may have ended. Raises `ToolFailed` if there is none."""
        if name not in self._jobs:
            raise ToolFailed(f"There is no job {name!r} in this run: {did_you_mean(name, self._jobs)}")
        return self._jobs[name]

    def take_finished(self) -> list[str]:
        """One line for each job that has ended, unless the model has been told before."""
        ended = [job for job in self._jobs.values() if not job.is_running and not job.is_known_ended]
        for job in ended:
            job.is_known_ended = True
        return [f"Background job {job.id} {job.status}: {job.title}" for job in ended]


@asynccontextmanager
async def open_jobs(folder: Path, *, grace: float = GRACE) -> AsyncIterator[BackgroundJobs]:
    """Let commands run in the background until the block ends, their output in *folder*.

    Then each is asked to end, and killed *grace* seconds later; the block is left when all have ended.
    """
    send, receive = trio.open_memory_channel[_StartRequest](0)
    async with send, trio.open_nursery() as nursery:
        nursery.start_soon(_run_jobs, receive, grace)
        try:
            yield BackgroundJobs(folder, send, itertools.count(_last_number(folder) + 1))
        finally:
            nursery.cancel_scope.cancel()


def find_job(jobs: BackgroundJobs | None, name: str) -> BackgroundJob:
    """The job *name* of a workspace that may have none. Raises `ToolFailed` if there is no such job."""
    if jobs is None:
        raise ToolFailed("There are no background jobs here.")
    return jobs.find(name)


async def _run_jobs(orders: trio.MemoryReceiveChannel[_StartRequest], grace: float) -> None:
    async with orders, trio.open_nursery() as nursery:
        async for order in orders:
            own = partial(order.job.run, order.directory, order.environment, grace, order.sandbox)
            nursery.start_soon(own, name=order.job.id)


def _last_number(folder: Path) -> int:
    """The number of the last job of earlier runs: their output stays, and their ids are in the conversation."""
    names = (path.stem.removeprefix("bash_") for path in folder.glob("bash_*.out"))
    return max((int(name) for name in names if name.isdecimal()), default=0)
