"""Search and reading of Markdown files with agent definitions or skills, and problems found in such files."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import attrs

Severity = Literal["error", "warning", "note"]
""""error": the file or directory cannot be used. "warning": a probable mistake in it. "note": only information."""
MAX_BYTES = 1_000_000

_CANDIDATE = re.compile(r"(?!readme\.md$)[^.].*\.md", re.IGNORECASE | re.DOTALL)


@attrs.frozen(kw_only=True)
class FileProblem:
    """Problem in a definition or skill file, or in a directory with such files, to be shown to the user."""

    path: Path
    line: int = 1
    severity: Severity = "error"
    reason: str
    """One line that names the problem and, if possible, the correction."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.severity}: {self.reason}"


def replacement_problem(path: Path, replaced: str, *, is_same_scope: bool) -> FileProblem:
    """Return the problem that *path* replaces *replaced*: a warning if both have one scope (as "user"), else a note."""
    return FileProblem(path=path, severity="warning" if is_same_scope else "note", reason=f"replaces {replaced}")


def find_files(top: Path) -> Iterator[Path | FileProblem]:
    """Yield all `.md` files below the directory *top*, sorted, and problems for directories that cannot be searched.

    Yields nothing if *top* does not exist. Follows links; a link to a directory that was already searched is a problem.
    Skips hidden files and directories, and READMEs.
    """
    unreadable: list[FileProblem] = []

    def add_unreadable(exc: OSError) -> None:
        if not (isinstance(exc, FileNotFoundError) and Path(exc.filename) == top):
            unreadable.append(_unreadable(Path(exc.filename), exc))

    entered: set[Path] = set()
    for name, directories, files in os.walk(top, onerror=add_unreadable, followlinks=True):
        directory = Path(name)
        real = directory.resolve()
        if real in entered:
            directories.clear()
            reason = f"the link leads to {real}, which has already been searched"
            yield FileProblem(path=directory, reason=reason)
            continue
        entered.add(real)
        directories[:] = sorted(each for each in directories if not each.startswith("."))
        yield from (directory / file for file in sorted(files) if _CANDIDATE.fullmatch(file))
    yield from unreadable


def read_text(path: Path) -> str | FileProblem:
    """Return the text of *path*; a problem if it is no regular file, over `MAX_BYTES`, unreadable, or not UTF-8."""
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            return FileProblem(path=path, reason="not a regular file")
        if facts.st_size > MAX_BYTES:
            return FileProblem(path=path, reason=f"too large: {facts.st_size:,} bytes, the limit is {MAX_BYTES:,}")
        content = path.read_bytes()
    except OSError as exc:
        return _unreadable(path, exc)
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        line = content.count(b"\n", 0, exc.start) + 1
        reason = f"not UTF-8: byte 0x{content[exc.start]:02x} here; save the file as UTF-8"
        return FileProblem(path=path, line=line, reason=reason)


def _unreadable(path: Path, exc: OSError) -> FileProblem:
    return FileProblem(path=path, reason=f"cannot be read: {exc.strerror}")
