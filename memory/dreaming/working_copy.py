"""The working copy of a store, on which a dream works."""

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
"""The directory in which a dream works, in one that is its agent's own."""
LARGEST = 1_000_000
"""Bytes of a file that a dream gets to see, or may write."""

StopCheck = Callable[[], None]
"""Called before each of many files: by what it raises, a long work can be stopped."""


def never_stop() -> None:
    """The `StopCheck` that stops nothing."""


@attrs.frozen(kw_only=True)
class WorkingCopy:
    """The files of a store, twice: as they were, and as the dream leaves them."""

    directory: Path

    @property
    def base(self) -> Path:
        """As they were."""
        return self.directory / "base"

    @property
    def work(self) -> Path:
        """What the dream may change."""
        return self.directory / "memory"

    @property
    def evidence(self) -> Path:
        """Where the dream says which lines of which transcripts justify what it does."""
        return self.directory / "evidence.md"

    def remove(self) -> None:
        """Leave nothing of it. Blocks. Raises `OSError`."""
        shutil.rmtree(self.directory)


@attrs.frozen(kw_only=True)
class DraftFiles:
    """What a dream did to its copy."""

    files: tuple[DreamFile, ...]
    notes: tuple[str, ...]
    """What was passed over, and why."""


def copy_store(store: MemoryStore, scratch: Path, check: StopCheck = never_stop) -> WorkingCopy:
    """Copy all memories, the index and the daily logs of *store* to a new directory in *scratch*.

    What a dream left there that was killed is removed. A file that is no text, or too long, is not copied, and so never
    changed. Blocks. Raises `OSError` and what *check* raises, and then leaves nothing.
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
                _write(copied.base / path, content)
                _link_file(copied, path, content)
    except BaseException:
        shutil.rmtree(copied.directory, ignore_errors=True)
        raise
    return copied


def read_draft(copied: WorkingCopy) -> DraftFiles:
    """What was changed in the copy; what cannot be a memory is put back to what it was.

    A file without text is one that is to go. Blocks. Raises `OSError`.
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
            notes.append(f"{path} {reason}")
            _reset(copied, path, base)
            continue
        text = None if result is None or not result.strip() else result.decode()
        if file := hunks_between(path, None if base is None else base.decode(), text):
            files.append(file)
    # The index goes first: what follows from a change of a memory then finds its line there, or gone.
    return DraftFiles(files=tuple(sorted(files, key=lambda file: file.path != INDEX)), notes=tuple(notes))


def read_texts(directory: Path, check: StopCheck = never_stop) -> Iterator[tuple[str, str]]:
    """The memories and the index below *directory*, a copy, with their paths. Blocks. Raises what *check* raises."""
    for path in _files(directory):
        check()
        if not _is_log(path):
            yield path, _content(directory / path).decode()


def read_store_texts(store: MemoryStore) -> Iterator[tuple[str, str]]:
    """The memories and the index of *store* as they are now, those that are text. Blocks."""
    for path in (INDEX, *store.paths()):
        if (content := _readable(store, path)) is not None:
            yield path, content.decode()


def write_text(directory: Path, path: str, text: str | None) -> None:
    """Make *text* the file *path* of a copy; None for no file. Blocks. Raises `OSError`."""
    if text is None:
        (directory / path).unlink(missing_ok=True)
    else:
        _write(directory / path, text.encode())


def _readable(store: MemoryStore, path: str) -> bytes | None:
    """A file of *store* if it is text, and no link."""
    try:
        content = store.read(path)
    except (MemoryRefused, PermissionError):
        return None
    return content if content is not None and _objection("", content) is None else None


def _objection(path: str, content: bytes | None) -> str | None:
    """Why a dream cannot leave *content* at *path*."""
    if _is_log(path):
        return "is a daily log, which a dream does not change"
    if path and not path.endswith(".md"):
        return "is no memory: its name does not end with .md"
    if content is not None and len(content) > LARGEST:
        return f"has more than {LARGEST:,} bytes"
    try:
        is_binary = content is not None and "\0" in content.decode()
    except UnicodeDecodeError:
        is_binary = True
    return "is no text" if is_binary else None


def _is_log(path: str) -> bool:
    return path.startswith(f"{LOGS}/")


def _logs(directory: Path) -> Iterator[str]:
    """The daily logs of a store."""
    for parent, names, files in os.walk(directory / LOGS):
        names.sort()
        for name in sorted(files):
            if name.endswith(".md") and not name.startswith("."):
                yield (Path(parent) / name).relative_to(directory).as_posix()


def _files(directory: Path) -> Iterator[str]:
    """All files of a copy; no links, and nothing whose name begins with a dot."""
    for parent, names, files in os.walk(directory):
        names[:] = sorted(name for name in names if not name.startswith("."))
        for name in sorted(files):
            path = Path(parent) / name
            if not name.startswith(".") and not path.is_symlink() and path.is_file():
                yield path.relative_to(directory).as_posix()


def _link_file(copied: WorkingCopy, path: str, content: bytes) -> None:
    """Make the file of the base that of the work too: who writes it puts another in its place."""
    place = copied.work / path
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        place.hardlink_to(copied.base / path)
    except OSError:  # not every file system can
        _write(place, content)


def _is_untouched(copied: WorkingCopy, path: str) -> bool:
    try:
        return os.path.samestat((copied.base / path).lstat(), (copied.work / path).lstat())
    except FileNotFoundError:
        return False


def _reset(copied: WorkingCopy, path: str, base: bytes | None) -> None:
    if base is None:
        (copied.work / path).unlink()
    else:
        _write(copied.work / path, base)


def _content(path: Path) -> bytes:
    # Of one that is too long, enough to see that.
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content, durable=False, mode=0o600)
