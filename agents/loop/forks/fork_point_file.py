"""Files and memory files that pass a fork point to another process."""

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
    """Write *point* to a sealed memory file and return its descriptor, which the caller closes.

    The descriptor is not inherited by child processes. Raises `OSError`.
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
    """Read a fork point from the descriptor *file*. Raises as `ForkPoint.from_bytes` does, and `OSError`."""
    size = os.fstat(file).st_size
    if size == 0:
        raise ValueError("not a fork point: the file is empty")
    with mmap.mmap(file, size, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:
        return ForkPoint.from_bytes(view)


DIRECTORY = "forks"


def write_fork_file(agent: Agent, directory: Path) -> Path:
    """Write the fork point at the end of *agent*'s last reply to a file below *directory*, and return its path.

    The file is named after its bytes, so that siblings of one turn share it. Raises `ToolFailed`.
    """
    point = create_fork_point(agent)
    path = directory / DIRECTORY / point.hash.hex()
    if not path.exists():
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            replace_file(path, point.to_bytes(), durable=False, mode=0o600)
        except OSError as exc:
            raise ToolFailed(f"The fork cannot be started: {exc.strerror}.") from exc
    return path


def read_fork_file(path: Path) -> ForkPoint:
    """Read the fork point in the file *path*. Raises `ConfigInvalid` if the file is missing or damaged."""
    try:
        with path.open("rb") as file:
            return read_point(file.fileno())
    except (OSError, ValueError, PrefixDiffers) as exc:
        raise ConfigInvalid(str(path), f"not a usable fork point: {exc}") from exc
