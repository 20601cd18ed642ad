"""Ripgrep as a filter: it excludes files without a match."""

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
"""The version from which on it is trusted: it has all the options, and no known fault in what it finds."""
OPTIONS = (
    *("--no-config", "--no-ignore", "--hidden", "--no-mmap", "--regex-size-limit=10M"),
    *("--text", "--encoding=none", "--no-unicode", "--files-with-matches", "--null"),
)
"""Search all files that are named, as the bytes they are, and print nothing but names."""
BATCH = 500_000
"""Bytes of one command's paths; the system takes some 2,000,000 with everything else."""
ANSWERED = (0, 1)
"""How it ends when it has read all files: something was found, or nothing."""

_trusted: dict[str, bool] = {}


@functools.cache
def installed_ripgrep() -> str | None:
    """The program, as the process's first question found it on the path."""
    program = shutil.which("rg")
    # A relative entry of the path would have us run a program out of the directory that is searched.
    return program if program is not None and Path(program).is_absolute() else None


async def files_without(program: str, pattern: str, files: Sequence[str]) -> frozenset[str]:
    """Those of the *files*, given by absolute paths, that are text and have no line with the *pattern* of bytes.

    Nothing if the *program* is not ripgrep, is too old, or fails in any way. When cancelled, ends the program; a
    thread that looks at the files may go on for a while, and changes nothing.
    """
    if not await _is_trusted(program):
        return frozenset()
    texts = await trio.to_thread.run_sync(_texts_sync, files, abandon_on_cancel=True)
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
    """What the program prints; None if it fails or has anything to complain of."""
    try:
        ended = await trio.run_process(
            [program, *arguments], stdin=subprocess.DEVNULL, capture_stdout=True, capture_stderr=True, check=False
        )
    except OSError:
        return None
    return ended.stdout if ended.returncode in ANSWERED and not ended.stderr else None


def _texts_sync(files: Sequence[str]) -> list[str]:
    """The files worth giving away: large ones, binary ones and such as cannot be read are sorted out as ever."""
    return [path for path in files if _is_text_sync(path)]


def _is_text_sync(path: str) -> bool:
    try:
        descriptor = open_file(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        read_beginning(descriptor)
        # Files that the kernel makes up say that they are empty, and to read one to its end may take forever.
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
