"""Disk failures on chosen files."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import attrs

from coterie.files import Operation


@attrs.define(eq=False)
class FaultAt:
    """Fault hook that lets one operation, or all operations, on some files fail."""

    operation: Operation
    picks: Callable[[Path], bool]
    number: int | None = None
    """Index of the failing operation, counted from 0; None for all."""
    torn: float | None = None
    """Share of a write that reaches the disk; None if the disk is full."""
    _count: int = attrs.field(default=0, init=False)

    def before(self, operation: Operation, path: Path, size: int) -> int:
        if operation != self.operation or not self.picks(path):
            return size
        self._count += 1
        if self.number is not None and self._count != self.number + 1:
            return size
        if self.torn is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return int(size * self.torn)
