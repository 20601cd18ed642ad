"""Directory walk: the files below a directory without links, caches and ignored files."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.workspace.working_directory import printable_name
from coterie.glob_pattern import LEFT_OUT, GlobPattern

FILE_LIMIT = 100_000

# The configuration of a repository can name programs for git to run, and to look at files is no leave to run them.
GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false")
LIST = ("ls-files", "--cached", "--others", "--exclude-standard", "-z")


@attrs.frozen(kw_only=True)
class WalkResult:
    """What a walk found."""

    names: tuple[str, ...]
    """Paths of regular files, relative to the directory, sorted, and decoded as `os.fsdecode` does."""
    is_cut: bool
    """Whether the walk ended at FILE_LIMIT."""

    @property
    def note(self) -> str | None:
        """What the model must know about a walk that was cut."""
        return f"[only the first {FILE_LIMIT:,} files were looked at: name a deeper directory]" if self.is_cut else None


@attrs.frozen(kw_only=True)
class _Listed:
    """What git knows of one work tree, or of a directory in it."""

    names: frozenset[str]
    """Files, and directories that are repositories of their own."""
    directories: frozenset[str]
    """The directories they stand in."""


async def list_files(directory: Path) -> WalkResult:
    """The regular files below *directory*, in the same order every time.

    In a git work tree those that git tracks or would track, in nested repositories too; elsewhere all. A directory
    that is itself ignored is listed whole: whoever names it wants it. Links are never followed, so nothing outside is
    found. Raises `ToolFailed` if *directory* cannot be listed. A cancelled walk may leave its thread reading.
    """
    _check_directory(directory)
    names: list[str] = []
    pending = [""]
    while pending and len(names) <= FILE_LIMIT:
        prefix = pending.pop(0)
        top = directory / prefix
        listed = await _ask_git(top)
        found, nested = await trio.to_thread.run_sync(_scan_sync, top, listed, abandon_on_cancel=True)
        names += [prefix + name for name in found]
        pending += [f"{prefix}{name}/" for name in nested]
    return WalkResult(names=tuple(sorted(names[:FILE_LIMIT])), is_cut=len(names) > FILE_LIMIT)


def parse_pattern(pattern: str) -> GlobPattern:
    """Parse what the model gave as a pattern of file names. Raises `ToolFailed`."""
    try:
        return GlobPattern.parse(pattern)
    except ValueError as exc:
        raise ToolFailed(str(exc)) from exc


def display_path(path: Path, root: Path) -> str:
    """How the model is told of *path*: relative to *root* where it is inside, in characters that can be printed."""
    root = root.resolve()
    text = str(path.relative_to(root) if path.is_relative_to(root) else path)
    return printable_name(text)


def _check_directory(directory: Path) -> None:
    try:
        os.scandir(directory).close()
    except OSError as exc:
        raise ToolFailed(f"{printable_name(str(directory))} cannot be listed: {exc.strerror}") from exc


async def _ask_git(directory: Path) -> _Listed | None:
    """What git lists below *directory*; None where it has no say: no git, no work tree, an ignored directory."""
    output = await _git(directory, *LIST)
    if output is None or (not output and await _git(directory, "check-ignore", "--quiet", ".") is not None):
        return None
    names = frozenset(os.fsdecode(name).rstrip("/") for name in output.split(b"\0") if name)
    directories: set[str] = set()
    for name in names:
        parent = name.rpartition("/")[0]
        while parent and parent not in directories:
            directories.add(parent)
            parent = parent.rpartition("/")[0]
    return _Listed(names=names, directories=frozenset(directories))


async def _git(directory: Path, *arguments: str) -> bytes | None:
    """What git prints, or None if it fails or is not there."""
    # Set for a hook, these would turn every question to another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        ended = await trio.run_process(
            [*GIT, *arguments],
            cwd=directory,
            env={**environment, "GIT_OPTIONAL_LOCKS": "0"},
            capture_stdout=True,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except OSError:
        return None
    return ended.stdout if ended.returncode == 0 else None


def _scan_sync(top: Path, listed: _Listed | None) -> tuple[list[str], list[str]]:
    """The files below *top*, at most one over FILE_LIMIT, and the nested repositories, which are not entered."""
    files: list[str] = []
    nested: list[str] = []
    pending = [""]
    while pending and len(files) <= FILE_LIMIT:
        prefix = pending.pop()
        below = []
        for entry in _entries(top / prefix):
            name = prefix + entry.name
            if not entry.is_dir(follow_symlinks=False):
                if listed is None or name in listed.names:
                    files.append(name)
            elif _is_repository(name, entry.path, listed):
                nested.append(name)
            elif listed is None or name in listed.directories:
                below.append(f"{name}/")
        pending += reversed(below)
    return files[: FILE_LIMIT + 1], nested


def _is_repository(name: str, path: str, listed: _Listed | None) -> bool:
    return os.path.lexists(f"{path}/.git") if listed is None else name in listed.names


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Files and directories in the order of their names; none where we may not look."""
    try:
        with os.scandir(directory) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        is_wanted = entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
        if is_wanted and entry.name not in LEFT_OUT:
            yield entry
