"""Ripgrep as a filter that excludes files without a match."""

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import trio

from coterie.agents.tools.search.grep_worker import SkippedFile, open_file, read_beginning

OLDEST = (14, 1)
"""Oldest trusted version: it has all options and no known bug that misses matches."""
OPTIONS = (
    *("--no-config", "--no-ignore", "--hidden", "--no-mmap", "--regex-size-limit=10M"),
    *("--text", "--encoding=none", "--no-unicode", "--files-with-matches", "--null"),
)
"""Options to search exactly the given files as raw bytes and to print only names."""
BATCH = 500_000
"""Maximum bytes of the paths on one command line; the system allows about 2,000,000 in all."""

_trusted: dict[str, bool] = {}


@functools.cache
def installed_ripgrep() -> str | None:
    """Return the absolute path of ripgrep; None if it is not installed. Searches PATH once per process."""
    program = shutil.which("rg")
    # With a relative entry of PATH this could be a program in the searched directory.
    return program if program is not None and Path(program).is_absolute() else None


async def files_without(program: str, pattern: str, files: Sequence[str]) -> frozenset[str]:
    """Return the text files among *files*, absolute paths, without a line that matches the byte *pattern*.

    Empty if *program* is not ripgrep, is too old, or fails in any way. Cancellation kills the program; a thread may
    continue checking files.
    """
    if not await _is_trusted(program):
        return frozenset()
    texts = await trio.to_thread.run_sync(list, filter(_is_text_sync, files), abandon_on_cancel=True)
    without = set(texts)
    for batch in _batches(texts):
        output = await _run(program, *OPTIONS, f"--regexp={pattern}", "--", *batch)
        if output is None:
            return frozenset()
        found = {os.fsdecode(path) for path in output.split(b"\0") if path}
        if not found.issubset(batch):
            return frozenset()
        without -= found
    return frozenset(without)


async def _is_trusted(program: str) -> bool:
    if program not in _trusted:
        output = await _run(program, "--version")
        version = re.match(rb"ripgrep (\d+)\.(\d+)", output or b"")
        _trusted[program] = version is not None and (int(version[1]), int(version[2])) >= OLDEST
    return _trusted[program]


async def _run(program: str, *arguments: str) -> bytes | None:
    """Run the program and return its output; None if it fails or prints to stderr."""
    try:
        ended = await trio.run_process(
            [program, *arguments], stdin=subprocess.DEVNULL, capture_stdout=True, capture_stderr=True, check=False
        )
    except OSError:
        return None
    # The exit code is 1 if all files were read and none has a match.
    return ended.stdout if ended.returncode in (0, 1) and not ended.stderr else None


def _is_text_sync(path: str) -> bool:
    """Return False also for large and unreadable files, which are left to the Python search."""
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        read_beginning(descriptor)
        # Files in /proc and /sys have the size 0, and reading one may never end.
        return os.fstat(descriptor).st_size > 0
    except (OSError, SkippedFile):
        return False
    finally:
        os.close(descriptor)


def _batches(files: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for path in files:
        batch.append(path)
        size += len(os.fsencode(path))
        if size > BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
