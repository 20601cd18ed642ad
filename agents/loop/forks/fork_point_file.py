"""Fork points in files: how one reaches another process."""

import fcntl
import mmap
import os
from pathlib import Path

from coterie.agents.errors import ToolFailed
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.forks.fork import create_fork_point
from coterie.agents.loop.forks.fork_point import ForkPoint, PrefixDiffers
from coterie.errors import ConfigInvalid
from coterie.files import replace_file

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


def write_point(point: ForkPoint) -> int:
    """A descriptor of a memory file that holds *point* and that nobody can change; the caller closes it.

    Not inherited: whoever starts a process passes it on. Raises `OSError`.
    """
    file = os.memfd_create(f"fork of {point.parent}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        content = memoryview(point.to_bytes())
        while content:
            content = content[os.write(file, content) :]
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(file)
        raise
    return file


def read_point(file: int) -> ForkPoint:
    """The point in *file*, which stays open. Raises as `ForkPoint.from_bytes` does, and `OSError`."""
    size = os.fstat(file).st_size
    if size == 0:
        raise ValueError("not a fork point: the file is empty")
    with mmap.mmap(file, size, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:
        return ForkPoint.from_bytes(view)


DIRECTORY = "forks"


def write_fork_file(agent: Agent, directory: Path) -> Path:
    """The file of the point at the end of *agent*'s last reply, below the agent's *directory*.

    Siblings of one turn share it: it is named after its bytes. Raises `ToolFailed`.
    """
    point = create_fork_point(agent)
    path = directory / DIRECTORY / point.hash.hex()
    if not path.exists():
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            replace_file(path, point.to_bytes(), durable=False, mode=0o600)
        except OSError as exc:
            raise ToolFailed(f"No fork can be started: {exc.strerror}.") from exc
    return path


def read_fork_file(path: Path) -> ForkPoint:
    """The point in *path*. Raises `ConfigInvalid` if it is not there, or not what was written."""
    try:
        with path.open("rb") as file:
            return read_point(file.fileno())
    except (OSError, ValueError, PrefixDiffers) as exc:
        raise ConfigInvalid(str(path), f"no fork can begin there: {exc}") from exc
