"""The lock of a memory store: one writer at a time; the kernel releases the lock when the writing process dies."""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import attrs
from filelock import lock_descriptor

from coterie.files import replace_file, sync_directory
from coterie.memory.errors import MemoryRefused, StoreBusy
from coterie.memory.store.change_log import ChangeLog, open_change_log
from coterie.memory.store.confined_directory import ConfinedDirectory, open_confined

HISTORY = ".history"
LOCK = "lock"
LOCK_TIMEOUT = 30.0
"""Seconds after which waiting for the lock of a store fails with `StoreBusy`; a write takes milliseconds."""
_POLL = 0.001
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@attrs.frozen
class StoreLock:
    """A memory store that this process has locked for writing: its open directory and its open change log."""

    root: ConfinedDirectory
    history: ChangeLog


@contextmanager
def lock_store(directory: Path) -> Iterator[StoreLock]:
    """Lock the memory store in *directory* for the block; creates the directory, waits for the lock of other processes.

    Raises `StoreBusy` after a timeout, `MemoryRefused` if the path contains a link, and `OSError`.
    """
    give_up = time.monotonic() + LOCK_TIMEOUT
    while True:
        with ExitStack() as stack:
            root = stack.enter_context(open_confined(directory, make=True))
            history = None if root is None else stack.enter_context(open_history_directory(root, make=True))
            if history is not None:
                _lock(history, stack, directory, give_up)
            # If the directory was deleted while waiting, this lock protects nothing.
            if root is not None and history is not None and _is_still_there(directory, history):
                yield StoreLock(root, stack.enter_context(open_change_log(history, directory / HISTORY)))
                return
        if time.monotonic() > give_up:
            raise StoreBusy(str(directory), LOCK_TIMEOUT)


@contextmanager
def open_history_directory(root: ConfinedDirectory, *, make: bool = False) -> Iterator[int | None]:
    """Open the directory of the change log and yield its descriptor; yield None if it is missing and not *make*."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(HISTORY, 0o700, dir_fd=root.descriptor)
            sync_directory(root.path, dir_fd=root.descriptor)
    try:
        descriptor = os.open(HISTORY, _DIRECTORY, dir_fd=root.descriptor)
    except FileNotFoundError:
        yield None
        return
    except NotADirectoryError as exc:
        raise MemoryRefused(HISTORY, "in the memory directory must be a directory; rename this file") from exc
    try:
        if make:
            _exclude_from_git(root, descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


def _exclude_from_git(root: ConfinedDirectory, history: int) -> None:
    try:
        os.stat(".gitignore", dir_fd=history, follow_symlinks=False)
    except FileNotFoundError:
        replace_file(root.path / HISTORY / ".gitignore", b"*\n", durable=False, dir_fd=history)


def _lock(history: int, stack: ExitStack, directory: Path, give_up: float) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(LOCK, flags, 0o600, dir_fd=history)
    stack.callback(os.close, descriptor)  # closing releases the lock
    while not lock_descriptor(descriptor, blocking=False):
        if time.monotonic() > give_up:
            raise StoreBusy(str(directory), LOCK_TIMEOUT)
        time.sleep(_POLL)


def _is_still_there(directory: Path, history: int) -> bool:
    try:
        now = (directory / HISTORY).stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(now.st_mode) and os.path.samestat(now, os.fstat(history))
