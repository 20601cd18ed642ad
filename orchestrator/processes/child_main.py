"""First code that runs in a new child process of the root process: set-up, call of the entry function, and exit.

The exec starter runs it as `python -P -m coterie.orchestrator.processes.child_main ROOT DESCRIPTOR...`. A child forked
by the zygote (a process that has all modules imported) calls `run_child` directly.
"""

import contextlib
import importlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from coterie.orchestrator.processes.fork_handshake import ChildReport, PassedDescriptors
from coterie.orchestrator.processes.linux import die_with_parent, set_title
from coterie.orchestrator.processes.process_start import ProcessStart

Entry = Callable[[bytes, Sequence[int]], int | None]


def run_child(root: int, passed: PassedDescriptors) -> NoReturn:
    """Set up this new child process of *root*, report to *root* that it is ready, run its entry function, and exit.

    An error before the entry function runs is reported to *root* as a failed start. The exit status is that of the
    entry function. Exit handlers that were registered in the zygote do not run.
    """
    if not die_with_parent(root):
        os._exit(1)  # the root has ended, so there is no recipient for a report
    with socket.socket(fileno=passed.answer) as answer:
        if not ChildReport(pid=os.getpid()).send(answer):
            os._exit(1)
        try:
            start, entry = _set_up(passed)
        except Exception as exc:  # noqa: BLE001 - the import of an entry may raise anything; the caller gets it
            ChildReport.of_failure(exc).send(answer)
            os._exit(1)
        if not ChildReport(pid=os.getpid(), is_ready=True).send(answer):
            os._exit(1)
    _run(entry, start.payload, passed.descriptors)


def _set_up(passed: PassedDescriptors) -> tuple[ProcessStart, Entry]:
    if os.getsid(0) != os.getpid():
        os.setsid()
    # A shell or the zygote may have ignored some signals.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _set_descriptors(passed)
    with open(passed.start, "rb") as file:  # noqa: PTH123 - it has no path
        start = ProcessStart.from_bytes(file.read())
    # Only the variables that differ, so that unchanged memory pages stay shared with the zygote.
    before = dict(os.environ)
    for name in before.keys() - start.environment.keys():
        del os.environ[name]
    os.environ.update(start.environment.items() - before.items())
    os.chdir(start.directory)
    set_title(start.title)
    module, colon, function = start.entry.partition(":")
    if not colon:
        raise ValueError(f"the entry function {start.entry!r} of a child process must be package.module:function")
    entry: Entry = getattr(importlib.import_module(module), function)
    return start, entry


def _set_descriptors(passed: PassedDescriptors) -> None:
    """Set the child's standard streams, and close all other descriptors that are not in *passed*."""
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - for its number
        os.dup2(nothing.fileno(), 0)
    os.dup2(passed.stdout, 1)
    os.dup2(passed.stderr, 2)
    kept = {0, 1, 2, passed.answer, passed.start, *passed.descriptors}
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if number not in kept:
            # The list contains the descriptor that was used to read it, which is closed now.
            with contextlib.suppress(OSError):
                os.close(number)
    for number in passed.descriptors:
        os.set_inheritable(number, False)  # noqa: FBT003 - the parameter is positional-only


def _run(entry: Entry, payload: bytes, descriptors: Sequence[int]) -> NoReturn:
    status = 1
    try:
        status = entry(payload, descriptors) or 0
    except SystemExit as exc:
        status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
    except BaseException:  # noqa: BLE001 - the outermost frame of the process
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # the reader is gone, or the stream is closed
                stream.flush()
        os._exit(status & 0xFF)


if __name__ == "__main__":
    main_root, *main_descriptors = map(int, sys.argv[1:])
    run_child(main_root, PassedDescriptors.of(main_descriptors))
