"""A file fault hook whose faults are random but reproducible."""

import errno
import os
import random
from collections.abc import Mapping
from pathlib import Path

import attrs

from coterie.files import Operation


@attrs.define(eq=False)
class SeededFaults:
    """Fault hook that fails each type of operation with a given probability, reproducibly for one seed."""

    seed: int
    torn: float = 0.0
    full: float = 0.0
    fsync: float = 0.0
    rename: float = 0.0
    _random: random.Random = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._random = random.Random(self.seed)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, float]) -> "SeededFaults":
        """Build the hook from a mapping such as `{"seed": 7, "torn": 0.01}`."""
        return cls(**{**mapping, "seed": int(mapping.get("seed", 0))})  # type: ignore[arg-type]  # the seed is an int, all other values are floats

    def before(self, operation: Operation, path: Path, size: int) -> int:
        """Draw one random number per operation, so that faults depend only on the seed and the order of operations."""
        draw = self._random.random()
        if operation == "rename" and draw < self.rename:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        if operation == "fsync" and draw < self.fsync:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        if operation == "write" and draw < self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if operation == "write" and draw < self.full + self.torn:
            return self._random.randrange(size) if size else 0
        return size
