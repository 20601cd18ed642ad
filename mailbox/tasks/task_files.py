"""A task is a file: its name is the number, a change replaces it whole, and none is ever removed.

So the next number is one more than the highest name, whatever was deleted and whoever crashed; and a change of the
list is a change of one file, which is there or not.
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
"""Seconds between two tries to get the lock; it is held for milliseconds."""

LIMIT = 999_999
"""Tasks that a list can have: their names have six digits."""

TICK = 0.1
"""Seconds, more than file systems take to tell one moment from the next."""

_Version = tuple[int, int, int]
_NAME = re.compile(r"([0-9]{6})\.json")


@attrs.define(eq=False)
class TaskFiles:
    """The files of one task list. All of it blocks: call it in a thread, or in several."""

    directory: Path
    lock_timeout: float = LOCK_TIMEOUT
    is_durable: bool = True
    """Whether what was written survives a power cut, too; it always survives the death of every process."""
    _known: dict[TaskId, tuple[_Version, Task]] = attrs.field(factory=dict, init=False, repr=False)
    """What was read before: to look whether a file has changed is cheaper than to read it."""

    def path(self, task_id: TaskId) -> Path:
        """Where a task is."""
        return self.directory / f"{task_id:06}.json"

    def highest(self) -> TaskId:
        """The highest number that was ever given to a task; 0 for none. Raises `TasksFailed`."""
        try:
            matches = map(_NAME.fullmatch, os.listdir(self.directory))  # noqa: PTH208 - names are wanted, not paths
            highest = max((int(match[1]) for match in matches if match), default=0)
        except FileNotFoundError:
            highest = 0
        except OSError as exc:
            raise TasksFailed(self.directory, exc.strerror or str(exc)) from exc
        # A listing may leave out a name that is being replaced at that moment.
        while self.path(TaskId(highest + 1)).exists():
            highest += 1
        return TaskId(highest)

    def ids(self) -> Iterator[TaskId]:
        """The numbers of all tasks, readable or not, the oldest first. Raises `TasksFailed`."""
        return map(TaskId, range(1, self.highest() + 1))

    def read(self, task_id: TaskId) -> Task:
        """A task. Raises `UnknownTask` and `TaskDamaged`."""
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
        # A file could be replaced within one tick and look the same. The kernel's time counts here, not the session's.
        if time.time() - status.st_mtime > TICK:
            self._known[task_id] = (version, task)
        return task

    def write(self, task: Task) -> None:
        """Put *task* in the place of what has its number; only under `lock`. Raises `TasksFailed`."""
        path = self.path(task.id)
        try:
            replace_file(path, task.to_bytes(), durable=self.is_durable, mode=0o600)
        except OSError as exc:
            raise TasksFailed(path, f"could not be written: {exc.strerror or exc}") from exc

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Change the list within this block, alone of all processes. Raises `TasksBusy` and `TasksFailed`.

        The kernel takes the lock from a process that dies.
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
            raise TasksFailed(self.directory, f"cannot be locked: {exc.strerror or exc}") from exc
        try:
            yield
        finally:
            lock.release()


def _parse(task_id: TaskId, content: bytes) -> Task:
    task = Task.from_bytes(content)
    if task.id != task_id:
        raise ValueError(f"it is task {task.id}")
    return task
