"""Access to a memory directory that no path can leave: each component is opened separately, and links are refused."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs

from coterie.files import Appender, delete_file, replace_file, sync_directory
from coterie.memory.errors import MemoryRefused
from coterie.memory.store.path_rules import DEEPEST, SUFFIX, case_conflict, check_path, is_valid, normalize_name

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: opening a pipe in the place of a file must not block.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@attrs.frozen
class ConfinedDirectory:
    """An open directory. Even if other processes rename files during a call, no file outside is read or written.

    Methods block. They raise `OSError`, and `MemoryRefused` for a path that is not allowed or contains a link.
    """

    path: Path
    """Path with which the directory was opened, for messages; access to its files is relative to `descriptor`."""
    descriptor: int

    def read(self, path: str, limit: int | None = None) -> bytes | None:
        """Return the content of the file *path*, at most *limit* bytes; None if there is no such file."""
        parts = check_path(path)
        content = self._read(parts, limit)
        plain = tuple(map(normalize_name, parts))
        return self._read(plain, limit) if content is None and plain != parts else content

    def resolve(self, path: str) -> str:
        """Return *path* with existing names spelled as on the disk, and new names in Unicode normal form NFC.

        Raises `MemoryRefused` for a name that differs from an existing name only in case or normal form.
        """
        names: list[str] = []
        for part in check_path(path):
            with self._open(tuple(names)) as directory:
                names.append(part if directory is None else _resolve_name(part, directory, path))
        return "/".join(names)

    def write(self, path: str, content: bytes | None) -> None:
        """Replace the file *path* durably by *content*, with the same permissions, or create it; None deletes it."""
        *above, name = check_path(path)
        with self._open(tuple(above), make=content is not None) as directory:
            if directory is None:
                return
            mode = _mode(directory, name, path)
            if content is not None:
                replace_file(self.path / path, content, mode=mode, dir_fd=directory)
            elif mode is not None:
                delete_file(self.path / path, dir_fd=directory)

    def append(self, path: str, old: bytes | None, new: bytes) -> None:
        """Replace *old*, the content of the top-level file *path*, by *new*; if possible only append or truncate.

        After a crash the file may contain only a part of the appended bytes.
        """
        if old and (new.startswith(old) or old.startswith(new)):
            with Appender.open(self.path / path, dir_fd=self.descriptor) as file:
                status = os.fstat(file.fileno())
                # A file with several hard links would change under its other names too.
                if status.st_nlink == 1 and stat.S_ISREG(status.st_mode) and status.st_size == len(old):
                    file.cut(len(new)) if len(new) < len(old) else file.append(new[len(old) :])
                    file.sync()
                    return
        self.write(path, new)

    def list_files(self) -> list[str]:
        """List the Markdown files with valid paths, sorted. Links and names that begin with a dot are omitted."""
        return sorted(path for path in self._walk(()) if is_valid(path))

    def _walk(self, above: tuple[str, ...]) -> Iterator[str]:
        with self._open(above) as directory:
            if directory is None:
                return
            with os.scandir(directory) as entries:
                found = [
                    (entry.name, entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False))
                    for entry in entries
                ]
        for name, is_directory, is_file in found:
            if is_file and name.endswith(SUFFIX):
                yield "/".join((*above, name))
            elif is_directory and not name.startswith(".") and len(above) + 1 < DEEPEST:
                yield from self._walk((*above, name))

    def _read(self, parts: tuple[str, ...], limit: int | None) -> bytes | None:
        with self._open(parts[:-1]) as directory:
            if directory is None:
                return None
            try:
                descriptor = os.open(parts[-1], _FILE, dir_fd=directory)
            except FileNotFoundError:
                return None
            except OSError as exc:
                _refuse_link(exc, directory, parts[-1], "/".join(parts))
                raise
            try:
                mode = os.fstat(descriptor).st_mode
                if not stat.S_ISREG(mode):
                    raise MemoryRefused("/".join(parts), _describe_mode(mode))
                with os.fdopen(descriptor, "rb", closefd=False) as file:
                    return file.read(-1 if limit is None else limit)
            finally:
                os.close(descriptor)

    @contextmanager
    def _open(self, names: tuple[str, ...], *, make: bool = False) -> Iterator[int | None]:
        """Open the subdirectory *names* and yield its descriptor; yield None if it is missing and *make* is false."""
        opened = os.dup(self.descriptor)
        try:
            for number, name in enumerate(names):
                path = "/".join(names[: number + 1])
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=opened)
                        sync_directory((self.path / path).parent, dir_fd=opened)
                try:
                    below = os.open(name, _DIRECTORY, dir_fd=opened)
                except FileNotFoundError:
                    yield None
                    return
                except OSError as exc:
                    _refuse_link(exc, opened, name, path)
                    raise
                os.close(opened)
                opened = below
            yield opened
        finally:
            os.close(opened)


@contextmanager
def open_confined(directory: Path, *, make: bool = False) -> Iterator[ConfinedDirectory | None]:
    """Open the memory directory *directory*, created first if *make* is true; yield None if it does not exist.

    Its parents may be links, but *directory* itself may not: otherwise a repository could choose where memories are
    written. Raises `MemoryRefused` and `OSError`.
    """
    if make:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)  # memories are private to the user
            sync_directory(directory.parent)
    try:
        descriptor = os.open(directory, _DIRECTORY)
    except FileNotFoundError:
        yield None
        return
    except OSError as exc:
        if directory.is_symlink():
            reason = "is a link; give the directory to which it points"
            raise MemoryRefused(str(directory), reason) from exc
        raise
    try:
        yield ConfinedDirectory(directory, descriptor)
    finally:
        os.close(descriptor)


def _resolve_name(name: str, directory: int, path: str) -> str:
    for candidate in (name, normalize_name(name)):
        try:
            os.stat(candidate, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            continue
        return candidate
    if other := case_conflict(normalize_name(name), os.listdir(directory)):
        raise MemoryRefused(path, f"differs only in case or normal form from {other}, which exists; write {other}")
    return normalize_name(name)


def _mode(directory: int, name: str, path: str) -> int | None:
    """Return the permissions of the file *name*; None if missing. Raises `MemoryRefused` if it is no regular file."""
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise MemoryRefused(path, _describe_mode(mode))
    return stat.S_IMODE(mode)


def _refuse_link(exc: OSError, directory: int, name: str, path: str) -> None:
    """Raise `MemoryRefused` if opening *name* failed with *exc* because *name* is a link or has another file type."""
    if exc.errno not in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO):
        return
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except OSError:
        mode = stat.S_IFLNK  # deleted in between, so it may have been a link
    raise MemoryRefused(path, _describe_mode(mode)) from exc


def _describe_mode(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "is a link, and links are not followed in a memory directory; give the file itself"
    if stat.S_ISREG(mode):
        return "is a file, not a directory; give another path"
    return "is a directory; give the path of a file" if stat.S_ISDIR(mode) else "is not a regular file; delete it"
