"""Listing of the files below a directory for Glob and Grep, without links, `.git`, caches and git-ignored files."""

import os
from collections.abc import Iterator
from pathlib import Path

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.tools.workspace.working_directory import printable_name
from coterie.git_command import GitFailed, run_git
from coterie.glob_pattern import LEFT_OUT, GlobPattern

FILE_LIMIT = 100_000

# Listing files must not write an untracked cache into the index.
LIST = ("-c", "core.untrackedCache=false", "ls-files", "--cached", "--others", "--exclude-standard", "-z")


@attrs.frozen(kw_only=True)
class WalkResult:
    """Result of `list_files`: the files found below one directory."""

    names: tuple[str, ...]
    """Sorted paths of the regular files, relative to the listed directory, decoded with `os.fsdecode`."""
    is_cut: bool
    """True if `names` is incomplete, because the directory contains more than FILE_LIMIT files."""

    @property
    def note(self) -> str | None:
        """Note for the model that `names` is incomplete, to append to a tool result; None if `names` is complete."""
        return f"[only {FILE_LIMIT:,} files were searched; give a subdirectory as path]" if self.is_cut else None


async def list_files(directory: Path) -> WalkResult:
    """Return the paths of all regular files below *directory*, sorted, up to FILE_LIMIT.

    Omits symbolic links, the names in LEFT_OUT (such as `.git`), and files that git ignores, also in nested git
    repositories. If git ignores *directory* itself, ignored files are listed too. Skips unreadable subdirectories.
    Raises `ToolFailed` if *directory* cannot be read. After cancellation, a thread may continue reading.
    """
    try:
        os.scandir(directory).close()
    except OSError as exc:
        raise ToolFailed(f"{printable_name(str(directory))} cannot be listed: {exc.strerror}; change the path") from exc
    names: list[str] = []
    pending = [""]
    while pending and len(names) <= FILE_LIMIT:
        prefix = pending.pop(0)
        top = directory / prefix
        listing = await _list_with_git(top)
        found, nested = await trio.to_thread.run_sync(_scan_sync, top, listing, abandon_on_cancel=True)
        names += [prefix + name for name in found]
        pending += [f"{prefix}{name}/" for name in nested]
    return WalkResult(names=tuple(sorted(names[:FILE_LIMIT])), is_cut=len(names) > FILE_LIMIT)


def parse_pattern(pattern: str) -> GlobPattern:
    """Parse *pattern*, a file pattern from the model such as `src/**/*.py`. Raises `ToolFailed` if it is invalid."""
    try:
        return GlobPattern.parse(pattern)
    except ValueError as exc:
        raise ToolFailed(str(exc)) from exc


def display_path(path: Path, root: Path) -> str:
    """Return *path* as text for the model: relative to *root* if inside, with unprintable characters replaced."""
    root = root.resolve()
    text = str(path.relative_to(root) if path.is_relative_to(root) else path)
    return printable_name(text)


async def _list_with_git(directory: Path) -> frozenset[str] | None:
    """Return the paths of files that git does not ignore, and of nested repositories, relative to *directory*.

    None if git fails or is not installed, or if *directory* is outside a work tree or ignored by git.
    """
    output = await _git(directory, *LIST)
    if output is None or (not output and await _git(directory, "check-ignore", "--quiet", ".") is not None):
        return None
    return frozenset(name.rstrip("/") for name in output.split("\0") if name)


async def _git(directory: Path, *arguments: str) -> str | None:
    """Run git with *arguments* in *directory* and return its output; None if git fails or is not installed."""
    try:
        return await run_git(directory, *arguments)
    except GitFailed:
        return None


def _scan_sync(top: Path, listing: frozenset[str] | None) -> tuple[list[str], list[str]]:
    """Return the files below *top*, at most FILE_LIMIT + 1, and the nested git repositories, without their files.

    All paths are relative to *top*. Paths missing in *listing*, the list made by git, are omitted unless it is None.
    """
    directories: set[str] = set()
    for name in listing or ():
        parent = name.rpartition("/")[0]
        while parent and parent not in directories:
            directories.add(parent)
            parent = parent.rpartition("/")[0]
    files: list[str] = []
    nested: list[str] = []
    pending = [""]
    while pending and len(files) <= FILE_LIMIT:
        prefix = pending.pop()
        below = []
        for entry in _entries(top / prefix):
            name = prefix + entry.name
            if not entry.is_dir(follow_symlinks=False):
                if listing is None or name in listing:
                    files.append(name)
            elif os.path.lexists(f"{entry.path}/.git") if listing is None else name in listing:
                nested.append(name)
            elif listing is None or name in directories:
                below.append(f"{name}/")
        pending += reversed(below)
    return files[: FILE_LIMIT + 1], nested


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Yield regular files and directories in *directory*, sorted by name, without LEFT_OUT; none if unreadable."""
    try:
        with os.scandir(directory) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        is_listed = entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
        if is_listed and entry.name not in LEFT_OUT:
            yield entry
