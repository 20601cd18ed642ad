"""How a fork point reaches another process: a memory file that each fork maps, written once for all of them."""

import fcntl
import mmap
import os

from coterie.agents.forks.point import ForkPoint

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
