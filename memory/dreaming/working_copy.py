"""The working copy of a memory store: a dream (memory consolidation) edits the copy, and the store stays unchanged."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from coterie.files import replace_file
from coterie.memory.dreaming.hunks import DreamFile, hunks_between
from coterie.memory.errors import MemoryRefused
from coterie.memory.store.memory_store import MemoryStore
from coterie.memory.store.path_rules import INDEX, LOGS

PLACE = "dream"
"""Name of the directory of the working copy, inside the agent's scratch directory for temporary files."""
LARGEST = 1_000_000
"""Maximum size in bytes of a file that a dream can read or write; a longer file is left unchanged."""

StopCheck = Callable[[], None]
"""Callback that a long operation calls before each file; an exception that it raises stops the operation."""


def never_stop() -> None:
    """Do nothing: the default `StopCheck` (callback before each file), which never stops an operation."""


@attrs.frozen(kw_only=True)
class WorkingCopy:
    """Two copies of the files of a memory store: `base` for comparison, and `work`, which a dream edits."""

    directory: Path

    @property
    def base(self) -> Path:
        """Directory of the copy that stays unchanged, to compare the edited copy with it."""
        return self.directory / "base"

    @property
    def work(self) -> Path:
        """Directory of the copy that the model edits during the dream."""
        return self.directory / "memory"

    @property
    def evidence(self) -> Path:
        """Path of the file in which the model names the transcript lines that justify its changes; may not exist."""
        return self.directory / "evidence.md"

    def remove(self) -> None:
        """Delete the copy that the model edits, the unchanged copy and the evidence file. Blocks. Raises `OSError`."""
        shutil.rmtree(self.directory)


def copy_store(store: MemoryStore, scratch: Path, check: StopCheck = never_stop) -> WorkingCopy:
    """Copy all memories, the index and the daily logs of *store* twice into a new directory in *scratch*.

    First removes the copy of a dream that was killed. A file that is too long or is not text is not copied, so a dream
    cannot change it. Blocks. Raises `OSError` and the exceptions of *check*; then the copy is removed.
    """
    copied = WorkingCopy(directory=scratch.resolve() / PLACE)
    if copied.directory.exists():
        copied.remove()
    try:
        copied.work.mkdir(parents=True, mode=0o700)
        copied.base.mkdir(mode=0o700)
        for path in (INDEX, *store.paths(), *_logs(store.directory)):
            check()
            if (content := _readable(store, path)) is not None:
                write_file(copied.base / path, content)
                _link_file(copied, path, content)
    except BaseException:
        shutil.rmtree(copied.directory, ignore_errors=True)
        raise
    return copied


def read_draft(copied: WorkingCopy) -> tuple[list[DreamFile], list[str]]:
    """Return the files that the dream changed in the working copy, and a note for each edit that is ignored.

    A file that cannot be a memory gets its `base` content again. One without text counts as deleted. Raises `OSError`.
    """
    notes: list[str] = []
    files: list[DreamFile] = []
    before, after = set(_files(copied.base)), set(_files(copied.work))
    for path in sorted(before | after):
        if _is_untouched(copied, path):
            continue
        base = _content(copied.base / path) if path in before else None
        result = _content(copied.work / path) if path in after else None
        if base == result:
            continue
        if reason := _objection(path, result):
            notes.append(f"{path} {reason}; its edit was ignored")
            write_file(copied.work / path, base)
            continue
        text = None if result is None or not result.strip() else result.decode()
        if file := hunks_between(path, None if base is None else base.decode(), text):
            files.append(file)
    # The index comes first, so that the store finds the edited index lines when it updates the index.
    return sorted(files, key=lambda file: file.path != INDEX), notes


def read_texts(directory: Path, check: StopCheck = never_stop) -> Iterator[tuple[str, str]]:
    """Yield path and text of each memory and the index in *directory*, a copy; calls *check* before each. Blocks."""
    for path in _files(directory):
        check()
        if not _is_log(path):
            yield path, _content(directory / path).decode()


def read_store_texts(store: MemoryStore) -> Iterator[tuple[str, str]]:
    """Yield path and text of each memory and the index of *store*, except links, long and binary files. Blocks."""
    for path in (INDEX, *store.paths()):
        if (content := _readable(store, path)) is not None:
            yield path, content.decode()


def _readable(store: MemoryStore, path: str) -> bytes | None:
    """Return the content of the file *path* of *store*; None if it is missing, a link, too long or not text."""
    try:
        content = store.read(path)
    except (MemoryRefused, PermissionError):
        return None
    return content if content is not None and _objection("", content) is None else None


def _objection(path: str, content: bytes | None) -> str | None:
    """Return the reason why a dream may not change *path* to *content*, such as `is not text`; None if it may."""
    if _is_log(path):
        return "is a daily log, which a dream does not change"
    if path and not path.endswith(".md"):
        return "is not a memory, because its name does not end with .md"
    if content is not None and len(content) > LARGEST:
        return f"has more than {LARGEST:,} bytes"
    try:
        is_binary = content is not None and "\0" in content.decode()
    except UnicodeDecodeError:
        is_binary = True
    return "is not text" if is_binary else None


def _is_log(path: str) -> bool:
    return path.startswith(f"{LOGS}/")


def _logs(directory: Path) -> Iterator[str]:
    """Yield the paths of the daily log files of the store in *directory*, relative to it, in order."""
    for parent, names, files in os.walk(directory / LOGS):
        names.sort()
        for name in sorted(files):
            if name.endswith(".md") and not name.startswith("."):
                yield (Path(parent) / name).relative_to(directory).as_posix()


def _files(directory: Path) -> Iterator[str]:
    """Yield the relative paths of all files in *directory*, a copy, except links and names that begin with a dot."""
    for parent, names, files in os.walk(directory):
        names[:] = sorted(name for name in names if not name.startswith("."))
        for name in sorted(files):
            path = Path(parent) / name
            if not name.startswith(".") and not path.is_symlink() and path.is_file():
                yield path.relative_to(directory).as_posix()


def _link_file(copied: WorkingCopy, path: str, content: bytes) -> None:
    """Hard link a base file into the edited copy; `base` stays unchanged, because tools replace files as a whole."""
    place = copied.work / path
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        place.hardlink_to(copied.base / path)
    except OSError:  # not supported by every file system
        write_file(place, content)


def _is_untouched(copied: WorkingCopy, path: str) -> bool:
    try:
        return os.path.samestat((copied.base / path).lstat(), (copied.work / path).lstat())
    except FileNotFoundError:
        return False


def _content(path: Path) -> bytes:
    # One byte more than the limit is enough to detect a file that is too long.
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def write_file(path: Path, content: bytes | None) -> None:
    """Write *content* to *path*, a file of a working copy; None deletes the file. Blocks. Raises `OSError`."""
    if content is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content, durable=False, mode=0o600)
