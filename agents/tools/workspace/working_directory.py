"""Working directory of an agent's shell, carried from one command to the next."""

import contextlib
import os
import shlex
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from coterie.agents.errors import ToolFailed
from coterie.files import replace_file


def printable_name(name: str) -> str:
    """A file's name on one line, without what no JSON can carry."""
    if name.isprintable():
        return name
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)


FOLDER = ".shell-"
"""How the names of folders begin in which shells tell where they end; each is there for as long as its shell runs."""

END = "end"
"""The file in such a folder that the shell writes."""
LONGEST = 65_536
"""Bytes: more than any path has."""

START_UP = "BASH_ENV"
"""The variable that names a file which bash reads before it runs a command."""


def _resolved(path: Path) -> Path:
    return path.resolve()


@attrs.define(eq=False)
class ShellState:
    """What one command leaves to the next. Belongs to the task that runs the agent's tools."""

    root: Path = attrs.field(converter=_resolved)
    """What is not left, with links followed."""
    directory: Path = attrs.field(init=False)
    """Where the next command starts, with links followed: the root, or a directory inside it."""
    _drained: Path = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.directory = self._drained = self.root

    def enter(self) -> str | None:
        """Make sure that a command can start in the directory; if it must be the root, says so for the model."""
        return self.update_directory(self.directory)

    def update_directory(self, directory: Path) -> str | None:
        """Let the next command start in *directory*; if it must be the root instead, says so for the model."""
        fault = self._fault(directory)
        self.directory = directory if fault is None else self.root
        if fault is None:
            return None
        root, left = printable_name(str(self.root)), printable_name(str(directory))
        return f"[the working directory is {root} again: {left} {fault}]"

    def take_changes(self) -> str | None:
        """The directory, relative to the root, if it is another one than when this was last asked."""
        if self.directory == self._drained:
            return None
        self._drained = self.directory
        return str(self.directory.relative_to(self.root))

    def restore(self, directory: str) -> None:
        """Start the next command in what `take_changes` said in an earlier run, as far as it is still there.

        Raises `ValueError` for what `take_changes` cannot have said.
        """
        path = self.root / directory
        if not path.is_relative_to(self.root) or ".." in path.parts:
            raise ValueError(f"{directory!r} is outside the root")
        self.directory = self._drained = path

    def _fault(self, directory: Path) -> str | None:
        if directory == self.root:
            return None
        if not directory.is_relative_to(self.root):
            return "is outside it"
        if not directory.is_dir() or directory.resolve() != directory:
            return "is gone"
        try:
            str(directory.relative_to(self.root)).encode()
        except UnicodeEncodeError:  # it could not be recorded
            return "is not UTF-8"
        return None


@attrs.frozen(kw_only=True)
class DirectoryReport:
    """Where a shell was when it ended, as told by itself.

    It is told by a trap that a start-up file sets, so the command is run as it is: a wrapper around it would show in
    line numbers, error messages and `set -x`. `trap -p` and `set -v` do show the trap.
    """

    environment: Mapping[str, str]
    """What the shell must be started with."""
    _folder: int
    """The folder that the shell writes in, held open: a command may put another one in its place."""

    def read(self) -> Path | None:
        """The directory, with links followed.

        None if the shell could not tell: it was killed, or replaced by `exec`, or the command set an EXIT trap of
        its own.
        """
        # What a command has put there instead must neither be followed nor waited for.
        try:
            descriptor = os.open(END, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._folder)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            told = file.read(LONGEST).removesuffix(b"\n") if is_file else b""
        return Path(os.fsdecode(told)) if told and b"\0" not in told else None


@contextlib.contextmanager
def open_directory_report(scratch: Path, environment: Mapping[str, str]) -> Iterator[DirectoryReport]:
    """Let a shell tell where it ends: one that is started in the block, with the environment of the report.

    That one is *environment* with what it takes. Raises `ToolFailed` if there can be no files in *scratch*.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix=FOLDER, dir=scratch, ignore_cleanup_errors=True)
    except OSError as exc:
        raise _not_started(exc) from exc
    with folder as name:
        start, end = Path(name, "start"), Path(name, END)
        try:
            replace_file(start, os.fsencode(_start_up(end, environment.get(START_UP))), durable=False)
        except OSError as exc:
            raise _not_started(exc) from exc
        descriptor = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield DirectoryReport(environment={**environment, START_UP: str(start)}, folder=descriptor)
        finally:
            os.close(descriptor)


def _start_up(end: Path, users: str | None) -> str:
    """What the shell does first: forget about this file, read the user's own, and set the trap."""
    # Where the directory is gone only a variable has its name. What `set -x` says in the group goes where errors go.
    trap = f'{{ builtin pwd -P || builtin echo "$PWD"; }} 2> /dev/null >| {shlex.quote(str(end))}'
    lines = [f"unset -v {START_UP}"]
    if users is not None:
        file = shlex.quote(users)
        lines = [f"export {START_UP}={file}", f"[ ! -r {file} ] || . {file}"]
    return "\n".join([*lines, f"trap -- {shlex.quote(trap)} EXIT\n"])


def _not_started(exc: OSError) -> ToolFailed:
    return ToolFailed(f"The command could not be started: {exc}")
