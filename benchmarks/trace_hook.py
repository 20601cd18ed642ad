"""Profile hook that records the project's modules whose functions run, for every process that imports it.

`benchmarks/trace_path.py` copies this file to a directory of its own as `sitecustomize.py` and puts that directory
into PYTHONPATH. It imports nothing of the project.
"""

import mmap
import os
import sys
import threading
import time
from types import FrameType
from typing import Any

VARIABLE = "COTERIE_TRACE_DIRECTORY"
"""Environment variable with the directory of the records, one file for each process id."""
WINDOW = "window"
"""File in that directory whose one byte is the number of the window: a new window records every module again."""
PROJECT = "coterie"
OPTIMIZED = 1
"""Code flag of functions, which modules and class bodies lack."""
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}


class Recorder:
    """Profile function of a process and of its forks.

    A line is `time window kind module`, the time by the monotonic clock, which all processes share. The kind is `run`
    or, for a function that is called by the import of a module, `import`. A line is one write, so a process that is
    killed loses none.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        with open(os.path.join(directory, WINDOW), "r+b") as file:  # noqa: PTH118, PTH123 - avoids an import
            self._window = mmap.mmap(file.fileno(), 1)
        self._pid = self._number = -1
        self._noted: set[tuple[str, str]] = set()
        self._others: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Record the module of a function that is called or resumed."""
        if event != "call":
            return
        name: str | None = frame.f_globals.get("__name__")
        if name is None or name in self._others:
            return  # it is None during interpreter shutdown
        if name == "__main__":
            spec = frame.f_globals.get("__spec__")
            name = "" if spec is None else spec.name
        if name.partition(".")[0] != PROJECT:
            if name:
                self._others.add(name)
            return
        self._see(frame, name)

    def _see(self, frame: FrameType, name: str) -> None:
        number, pid = self._window[0], os.getpid()
        if pid != self._pid or number != self._number:
            self._noted = set()
            self._pid, self._number = pid, number
        code = frame.f_code
        if ("run", name) in self._noted or not code.co_flags & OPTIMIZED or code.co_name in COMPREHENSIONS:
            return
        kind = "import" if _is_importing(frame) else "run"
        if (kind, name) not in self._noted:
            self._noted.add((kind, name))
            self._write(f"{time.monotonic_ns()} {number} {kind} {name}\n".encode())

    def _write(self, line: bytes) -> None:
        """Open the file for each line, because a process may close all descriptors that it does not know."""
        path = os.path.join(self._directory, str(self._pid))  # noqa: PTH118 - avoids an import
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(file, line)
        os.close(file)


def _is_importing(frame: FrameType) -> bool:
    """True if a function runs because a module is being imported."""
    caller: Any = frame.f_back
    while caller is not None:
        if caller.f_code.co_name == "<module>" and caller.f_globals.get("__name__") != "__main__":
            return True
        caller = caller.f_back
    return False


def start(directory: str) -> None:
    """Profile this thread and later ones."""
    recorder = Recorder(directory)
    threading.setprofile(recorder)
    sys.setprofile(recorder)


if VARIABLE in os.environ:
    start(os.environ[VARIABLE])
