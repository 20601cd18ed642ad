"""Linux system calls for parents, children and process titles."""

import ctypes
import errno
import os
import platform
import signal

from coterie.process_identity import read_stat

_SET_DEATH_SIGNAL = 1
_SET_NAME = 15
_SET_SUBREAPER = 36
_GET_SUBREAPER = 37
_GET_THREAD_ADDRESS = 40

_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220}
"""The number of the call. There is a newer one that has the same everywhere, but containers often forbid it."""
_CLONE_PARENT = 0x8000
_CLONE_CLEAR_THREAD = 0x200000
_CLONE_SET_THREAD = 0x1000000

_libc = ctypes.PyDLL(None, use_errno=True)
"""Called with the interpreter's lock held, as a fork must be."""
# Looked up here: between a fork and the last of these the interpreter is not whole.
_before_fork = ctypes.pythonapi.PyOS_BeforeFork
_after_fork_in_parent = ctypes.pythonapi.PyOS_AfterFork_Parent
_after_fork_in_child = ctypes.pythonapi.PyOS_AfterFork_Child


def become_subreaper(*, yes: bool) -> bool:
    """Say whether this process becomes the parent of descendants that lose theirs; returns whether it was so before."""
    before = ctypes.c_int()
    _prctl(_GET_SUBREAPER, ctypes.addressof(before))
    _prctl(_SET_SUBREAPER, int(yes))
    return bool(before.value)


def die_with_parent(parent: int) -> bool:
    """Be killed when the process *parent* ends; False if it is not, or no longer, the parent.

    The signal follows the thread that is the parent, so whoever starts processes does so on its main thread.
    """
    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    return os.getppid() == parent


def fork_sibling() -> int:
    """As `os.fork`, but the new process is a child of our parent, which reaps it. Raises `OSError`.

    For a process with one thread. The handlers of Python's `os.register_at_fork` are run, those of C libraries are not.
    """
    call = _CLONE.get(platform.machine())
    if call is None:
        raise OSError(errno.ENOSYS, f"no fork of siblings is known for {platform.machine()}")
    flags, thread = _CLONE_PARENT | signal.SIGCHLD, ctypes.c_void_p(_thread_address())
    if thread:
        flags |= _CLONE_SET_THREAD | _CLONE_CLEAR_THREAD
    _before_fork()
    # Machines differ in which of the last two is the thread's address; the other one is not looked at.
    pid: int = _libc.syscall(ctypes.c_long(call), ctypes.c_long(flags), None, None, thread, thread)
    if pid == 0:
        _after_fork_in_child()
        return pid
    number = ctypes.get_errno()
    _after_fork_in_parent()
    if pid < 0:
        raise OSError(number, os.strerror(number))
    return pid


def set_title(title: str) -> None:
    """Show *title* in `ps` and `top`; it is cut to the room of the command line it is written over."""
    encoded = title.encode()
    _prctl(_SET_NAME, encoded)
    stat = read_stat(os.getpid())
    assert stat is not None, "a process that asks is alive"
    start, end = stat.arguments
    if room := end - start:  # none where the kernel does not tell
        ctypes.memmove(start, encoded[: room - 1].ljust(room, b"\0"), room)


def _thread_address() -> int | None:
    """Where the C library keeps the number of this thread, which a new process must have its own in."""
    address = ctypes.c_void_p()
    try:
        _prctl(_GET_THREAD_ADDRESS, ctypes.addressof(address))
    except OSError:  # a kernel that does not tell: the old number stays, which few locks ever look at
        return None
    return address.value


def _prctl(option: int, argument: int | bytes) -> None:
    value = argument if isinstance(argument, bytes) else ctypes.c_ulong(argument)
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
