"""A look at a file that its next change does not have to pay for.

Whoever asks for the times of a file has the kernel give its next change a time of its own, so that the two can be told
apart. No file that is written later may be older, so each gets a new time, too, and a sync has one more inode to write:
a third of what a synced message takes. A look that asks for no times has no such price.
"""

import ctypes
import os
import struct
import threading
from collections.abc import Callable
from typing import NamedTuple

_HERE = -100
_EMPTY_PATH = 0x1000
_ASKED = 0x1 | 0x2 | 0x4 | 0x100 | 0x200
"""Type, mode, links, inode and size."""
_BYTES = 256


class FileStat(NamedTuple):
    """What can be seen; named as in `os.stat_result`. Devices can be compared with those of other looks only."""

    st_nlink: int
    st_mode: int
    st_ino: int
    st_size: int
    st_dev: int


def fast_fstat(descriptor: int) -> "FileStat | os.stat_result":
    """As `os.fstat`, without times. Raises `OSError`."""
    buffer = _stat_buffer.buffer
    if _statx(descriptor, b"", _EMPTY_PATH, _ASKED, buffer) != 0:
        return os.fstat(descriptor)  # which says what is wrong
    return _new(FileStat, _unpack(buffer))


def fast_stat(path: str) -> "FileStat | os.stat_result":
    """As `os.stat`, without times. Raises `OSError`."""
    buffer = _stat_buffer.buffer
    if _statx(_HERE, os.fsencode(path), 0, _ASKED, buffer) != 0:
        return os.stat(path)  # noqa: PTH116 - it is for who looks often
    return _new(FileStat, _unpack(buffer))


class _StatBuffer(threading.local):
    """Where the kernel writes its answer, made once for each thread."""

    def __init__(self) -> None:
        self.buffer = ctypes.create_string_buffer(_BYTES)


def _find_statx() -> Callable[..., int]:
    try:
        # `PyDLL` does not let other threads run meanwhile, which would take longer than the call.
        return ctypes.PyDLL(None).statx
    except (OSError, AttributeError):
        return lambda *_: -1  # a C library without it


_new = tuple.__new__
_statx = _find_statx()
_stat_buffer = _StatBuffer()
_unpack = struct.Struct("=16xI8xH2xQQ88xQ").unpack_from
