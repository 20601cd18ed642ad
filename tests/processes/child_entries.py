"""Entry points of children in the tests of process starters."""

import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import trio

FIFO = "COTERIE_TEST_FIFO"
"""Environment variable with the path where a child that never becomes ready reports that it exists."""
POOR = 54_321
"""User id without any process."""


def describe(payload: bytes, descriptors: Sequence[int]) -> None:
    """Describe this process on the first descriptor."""
    facts = {
        "payload": payload.decode(),
        "pid": os.getpid(),
        "parent": os.getppid(),
        "group": os.getpgrp(),
        "session": os.getsid(0),
        "directory": str(Path.cwd()),
        "environment": dict(os.environ),
        "descriptors": sorted(_open_descriptors()),
        "inheritable": [number for number in _open_descriptors() if number > 2 and os.get_inheritable(number)],
        "passed": list(descriptors),
        "stdin": str(Path("/proc/self/fd/0").readlink()),
        "random": random.random(),
        "threads": threading.active_count(),
        "handlers": {number: str(signal.getsignal(number)) for number in (signal.SIGCHLD, signal.SIGTERM)},
    }
    with socket.socket(fileno=descriptors[0]) as answer:
        answer.sendall(msgspec.json.encode(facts))


def _open_descriptors() -> list[int]:
    numbers = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    return [number for number in numbers if Path(f"/proc/self/fd/{number}").exists()]


def echo(_payload: bytes, descriptors: Sequence[int]) -> None:
    """Echo the first descriptor until it is closed."""
    with socket.socket(fileno=descriptors[0]) as peer:
        while data := peer.recv(1000):
            peer.sendall(data)


def exit_with(payload: bytes, _descriptors: Sequence[int]) -> int:
    return int(payload)


def leave(payload: bytes, _descriptors: Sequence[int]) -> NoReturn:
    """Exit like a program."""
    raise SystemExit(int(payload))


def fail(payload: bytes, _descriptors: Sequence[int]) -> NoReturn:
    """Raise, with unflushed output on both streams."""
    print("said", end="")  # noqa: T201 - it is what is tested
    raise RuntimeError(payload.decode())


def stay(_payload: bytes, _descriptors: Sequence[int]) -> None:
    """Wait for a signal that ends the process."""
    signal.pause()


def shelter(_payload: bytes, descriptors: Sequence[int]) -> None:
    """Start a process in the same group, report its pid, and ignore termination requests."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with subprocess.Popen(["/bin/sleep", "1000"]) as process, socket.socket(fileno=descriptors[0]) as peer:
        peer.sendall(str(process.pid).encode())
        process.wait()


def call_first(_payload: bytes, descriptors: Sequence[int]) -> None:
    """Make the first model call of this process, and report which objects existed and which were created."""
    from coterie.agents.loop.model import client_warmup as transport  # noqa: PLC0415 - it imports the SDK
    from tests.processes.loopback_call import call_loopback_model  # noqa: PLC0415 - so does it

    had = set(sys.modules)
    contexts = transport._checking.cache_info().currsize  # noqa: SLF001 - how long it takes tells nothing for sure
    trio.run(call_loopback_model)
    facts = {
        "is_agent": "coterie.agents.runtime.agent_main" in had,
        "imported": sorted(set(sys.modules) - had),
        "threads": threading.active_count(),
        "contexts": contexts,
    }
    with open(descriptors[0], "wb") as answer:  # noqa: PTH123 - it has no path
        answer.write(msgspec.json.encode(facts))


def __getattr__(name: str) -> Any:
    if name == "killed_on_the_way":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "never_ready":
        Path(os.environ[FIFO]).write_text(str(os.getpid()))
        signal.pause()
    raise AttributeError(f"no {name} among the entries")


def allow_one_process() -> None:
    """Use up the process limit, so that no fork is possible."""
    _become_poor(1)


def _become_poor(processes: int) -> None:
    if os.getuid() == 0:  # the limit does not count for it
        os.setuid(POOR)
    resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))


def have_a_thread() -> None:
    """Start a thread, which a zygote must not have."""
    threading.Thread(target=threading.Event().wait, daemon=True).start()
