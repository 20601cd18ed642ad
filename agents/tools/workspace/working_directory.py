"""Working directory of an agent's shell commands: each command starts in the directory in which the previous ended."""

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

FOLDER = ".shell-"
"""Prefix of the name of the temporary folder in which a shell reports its final working directory."""
END = "end"
"""Name of the file to which a shell writes its final working directory."""
MAX_PATH_BYTES = 65_536
"""Maximum bytes to read of the file with the final working directory; more than any path has."""
START_UP = "BASH_ENV"
"""Environment variable that names the start-up file, a script that bash runs before its command."""


def printable_name(name: str) -> str:
    """Return *name* with U+FFFD for each unprintable character, so that a file name fits on one line and into JSON."""
    if name.isprintable():
        return name
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name)


@attrs.define(eq=False)
class ShellState:
    """Working directory of an agent's shell commands: the directory in which the next command starts."""

    root: Path
    """Start directory of the agent, with links followed; the working directory is always this or inside it."""
    directory: Path = attrs.field(init=False)
    """Working directory of the next command, with links followed: `root` or a directory inside it."""
    _drained: Path = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.root = self.directory = self._drained = self.root.resolve()

    def enter(self) -> str | None:
        """Return None if the working directory is still valid; else set it to `root`, return a note for the model."""
        return self.update_directory(self.directory)

    def update_directory(self, directory: Path) -> str | None:
        """Set the working directory, return None; if *directory* is invalid, set `root` and return a note on that."""
        problem = self._problem(directory)
        self.directory = directory if problem is None else self.root
        if problem is None:
            return None
        root, refused = printable_name(str(self.root)), printable_name(str(directory))
        return f"[the working directory is {root} again: {refused} {problem}]"

    def take_changes(self) -> str | None:
        """Return the working directory, relative to `root`, if it has changed since the last call; else None."""
        if self.directory == self._drained:
            return None
        self._drained = self.directory
        return str(self.directory.relative_to(self.root))

    def restore(self, directory: str) -> None:
        """Set the working directory to *directory*, which `take_changes` returned in an earlier run of the agent.

        Raises `ValueError` for a directory outside `root`. Does not check that the directory exists.
        """
        path = self.root / directory
        if not path.is_relative_to(self.root) or ".." in path.parts:
            raise ValueError(f"the recorded working directory {directory!r} is outside the project {self.root}")
        self.directory = self._drained = path

    def _problem(self, directory: Path) -> str | None:
        if directory == self.root:
            return None
        if not directory.is_relative_to(self.root):
            return "is outside it"
        if not directory.is_dir() or directory.resolve() != directory:
            return "does not exist any longer"
        try:
            str(directory.relative_to(self.root)).encode()
        except UnicodeEncodeError:  # such a path cannot be recorded in the transcript
            return "is not UTF-8"
        return None


@attrs.frozen(kw_only=True)
class DirectoryReport:
    """Report of one shell about the directory in which it ended, so that the next command can start there.

    The shell writes the report in an EXIT trap, which a start-up file sets. The command itself is unchanged, because a
    wrapper would be visible in line numbers, error messages and `set -x`. `trap -p` and `set -v` do show the trap.
    """

    environment: Mapping[str, str]
    """Environment variables with which the shell must be started, so that it writes the report."""
    _folder: int
    """Open descriptor of the folder with the report; its path is not used, as a command could replace the folder."""

    def read(self) -> Path | None:
        """Return the directory in which the shell ended, with links followed.

        None if there is no report: the shell was killed or replaced by `exec`, or the command set another EXIT trap.
        """
        # A command may have replaced the file by a link, which must not be followed, or by a pipe, which would block.
        try:
            descriptor = os.open(END, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._folder)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            path = file.read(MAX_PATH_BYTES).removesuffix(b"\n") if is_file else b""
        return Path(os.fsdecode(path)) if path and b"\0" not in path else None


@contextlib.contextmanager
def open_directory_report(scratch: Path, environment: Mapping[str, str]) -> Iterator[DirectoryReport]:
    """Prepare a report for one shell, which must be started in the block with `environment` of the yielded object.

    Creates a temporary folder in *scratch*, removed after the block. Raises `ToolFailed` if that fails. The yielded
    environment is *environment* with BASH_ENV set.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder = tempfile.TemporaryDirectory(prefix=FOLDER, dir=scratch, ignore_cleanup_errors=True)
            name = stack.enter_context(folder)
            start, end = Path(name, "start"), Path(name, END)
            replace_file(start, os.fsencode(_start_up(end, environment.get(START_UP))), durable=False)
        except OSError as exc:
            raise ToolFailed(f"The command could not be started: {exc}. Tell the user about this error.") from exc
        descriptor = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, descriptor)
        yield DirectoryReport(environment={**environment, START_UP: str(start)}, folder=descriptor)


def _start_up(end: Path, users: str | None) -> str:
    """Return a bash script: sets BASH_ENV to *users*, runs that file, at exit writes the working directory to *end*."""
    # If the directory was deleted, only $PWD has its name. The stderr of the group is dropped: `set -x` writes there.
    trap = f'{{ builtin pwd -P || builtin echo "$PWD"; }} 2> /dev/null >| {shlex.quote(str(end))}'
    lines = [f"unset -v {START_UP}"]
    if users is not None:
        file = shlex.quote(users)
        lines = [f"export {START_UP}={file}", f"[ ! -r {file} ] || . {file}"]
    return "\n".join([*lines, f"trap -- {shlex.quote(trap)} EXIT\n"])
