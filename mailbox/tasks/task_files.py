"""Files of a task list: one file for each task, named by the number of the task.

A change of one task replaces its file, so it is atomic. Files are never removed, even for deleted tasks. So the
next task number is the highest number in a file name plus one.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import filelock

from coterie.files import replace_file
from coterie.mailbox.tasks.errors import TaskDamaged, TasksBusy, TasksFailed, UnknownTask
from coterie.mailbox.tasks.task import Task, TaskId

LOCK_FILE = ".lock"
LOCK_TIMEOUT = 10.0
LOCK_POLL = 0.002
"""Seconds between two attempts to get the lock, which is held for milliseconds."""

LIMIT = 999_999
"""Largest number of tasks: their file names have six digits."""

TICK = 0.1
"""Age in seconds from which the content of a file is cached. It exceeds the time resolution of file systems."""

_Version = tuple[int, int, int]
_NAME = re.compile(r"([0-9]{6})\.json")


@attrs.define(eq=False)
class TaskFiles:
    """Files of one task list. All methods block. They may be called from several threads."""

    directory: Path
    lock_timeout: float = LOCK_TIMEOUT
    is_durable: bool = True
    """True if writes survive a power cut; they always survive a crash of all processes."""
    _known: dict[TaskId, tuple[_Version, Task]] = attrs.field(factory=dict, init=False, repr=False)
    """Cache of tasks by number, each with inode, size and time of its file: a `stat` is cheaper than reading."""

    def path(self, task_id: TaskId) -> Path:
        """Return the path of the file of task *task_id*."""
        return self.directory / f"{task_id:06}.json"

    def highest(self) -> TaskId:
        """Return the highest number of a task file, also of a deleted task; 0 without files. Raises `TasksFailed`."""
        try:
            matches = map(_NAME.fullmatch, os.listdir(self.directory))  # noqa: PTH208 - names are wanted, not paths
            highest = max((int(match[1]) for match in matches if match), default=0)
        except FileNotFoundError:
            highest = 0
        except OSError as exc:
            raise TasksFailed(self.directory, f"the task list cannot be read: {exc.strerror or exc}") from exc
        # A directory listing may miss a file that is being replaced at that moment.
        while self.path(TaskId(highest + 1)).exists():
            highest += 1
        return TaskId(highest)

    def ids(self) -> Iterator[TaskId]:
        """Return all numbers from 1 to `highest`, even if a file is unreadable or was removed. Raises `TasksFailed`."""
        return map(TaskId, range(1, self.highest() + 1))

    def read(self, task_id: TaskId) -> Task:
        """Return a task, from its file or from the cache. Raises `UnknownTask` and `TaskDamaged`."""
        if not 0 < task_id <= LIMIT:
            raise UnknownTask(task_id, self.highest())
        try:
            status = os.stat(f"{self.directory}/{task_id:06}.json")  # noqa: PTH116 - a list is hundreds of these
            version = (status.st_ino, status.st_size, status.st_mtime_ns)
            known = self._known.get(task_id)
            if known is not None and known[0] == version:
                return known[1]
            task = _parse(task_id, self.path(task_id).read_bytes())
        except FileNotFoundError as exc:
            raise UnknownTask(task_id, self.highest()) from exc
        except OSError as exc:
            raise TaskDamaged(task_id, self.path(task_id), exc.strerror or str(exc)) from exc
        except ValueError as exc:
            raise TaskDamaged(task_id, self.path(task_id), str(exc)) from exc
        # A file replaced twice within one tick could look unchanged. The kernel sets its time, not the session's clock.
        if time.time() - status.st_mtime > TICK:
            self._known[task_id] = (version, task)
        return task

    def write(self, task: Task) -> None:
        """Create or replace the file of *task*. The caller must hold `lock`. Raises `TasksFailed`."""
        path = self.path(task.id)
        try:
            replace_file(path, task.to_bytes(), durable=self.is_durable, mode=0o600)
        except OSError as exc:
            raise TasksFailed(path, f"the task was not written; check the disk: {exc.strerror or exc}") from exc

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the task list, which excludes changes by other processes, until the block ends.

        If this process dies, the kernel releases the lock. Raises `TasksBusy` and `TasksFailed`.
        """
        lock = filelock.FileLock(
            self.directory / LOCK_FILE, self.lock_timeout, mode=0o600, thread_local=False, poll_interval=LOCK_POLL
        )
        try:
            self.directory.mkdir(mode=0o700, exist_ok=True)
            lock.acquire()
        except filelock.Timeout as exc:
            raise TasksBusy(self.directory, self.lock_timeout) from exc
        except OSError as exc:
            raise TasksFailed(self.directory, f"the task list was not locked; check the disk: {exc.strerror}") from exc
        try:
            yield
        finally:
            lock.release()


def _parse(task_id: TaskId, content: bytes) -> Task:
    task = Task.from_bytes(content)
    if task.id != task_id:
        raise ValueError(f"the file of task {task_id} contains task {task.id} instead")
    return task
