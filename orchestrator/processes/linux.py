"""Linux system calls for parent and child processes, and for process titles."""

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
"""Number of the clone system call by machine. clone3 has the same number everywhere, but containers often forbid it."""
_CLONE_PARENT = 0x8000
_CLONE_CLEAR_THREAD = 0x200000
_CLONE_SET_THREAD = 0x1000000

_libc = ctypes.PyDLL(None, use_errno=True)
"""C library; its calls keep Python's global interpreter lock, which a fork requires."""
# Looked up here, because the interpreter is not usable between a fork and the last of these calls.
_before_fork = ctypes.pythonapi.PyOS_BeforeFork
_after_fork_in_parent = ctypes.pythonapi.PyOS_AfterFork_Parent
_after_fork_in_child = ctypes.pythonapi.PyOS_AfterFork_Child


def become_subreaper(*, yes: bool) -> bool:
    """Set whether this process adopts its orphaned descendants; return True if it did before."""
    before = ctypes.c_int()
    _prctl(_GET_SUBREAPER, ctypes.addressof(before))
    _prctl(_SET_SUBREAPER, int(yes))
    return bool(before.value)


def die_with_parent(parent: int) -> bool:
    """Make the kernel kill this process when its parent ends. Returns False if *parent* is not the current parent.

    The kernel sends the signal when the thread that started this process ends. So start processes on the main thread.
    """
    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
    return os.getppid() == parent


def fork_sibling() -> int:
    """Fork like `os.fork`, but as a child of this process's parent, which must reap it. Raises `OSError`.

    Only for a process with one thread. Handlers of `os.register_at_fork` run, but fork handlers of C libraries do not.
    """
    call = _CLONE.get(platform.machine())
    if call is None:
        raise OSError(errno.ENOSYS, f"cannot fork agents on {platform.machine()}; use x86_64, aarch64 or riscv64")
    flags, thread = _CLONE_PARENT | signal.SIGCHLD, ctypes.c_void_p(_thread_address())
    if thread:
        flags |= _CLONE_SET_THREAD | _CLONE_CLEAR_THREAD
    _before_fork()
    # Machines differ in which of the last two arguments is the thread's address; the other one is ignored.
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
    """Show *title* in `ps` and `top`. It overwrites the process's command line, and is cut to the length of that."""
    encoded = title.encode()
    _prctl(_SET_NAME, encoded)
    stat = read_stat(os.getpid())
    assert stat is not None, "this process is alive"
    start, end = stat.arguments
    if size := end - start:  # 0 if the kernel does not report the addresses
        ctypes.memmove(start, encoded[: size - 1].ljust(size, b"\0"), size)


def _thread_address() -> int | None:
    """Return where the C library stores the thread id, which a forked process must update; None if unknown."""
    address = ctypes.c_void_p()
    try:
        _prctl(_GET_THREAD_ADDRESS, ctypes.addressof(address))
    except OSError:  # not supported by this kernel: the old id stays, which only few locks use
        return None
    return address.value


def _prctl(option: int, argument: int | bytes) -> None:
    value = argument if isinstance(argument, bytes) else ctypes.c_ulong(argument)
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
