"""Zygote: a process that imports all modules once and then forks a child for each request of the root process.

Command line: `python -P -m coterie.orchestrator.processes.zygote SOCKET ROOT [NAME ...]`. It has one thread and no
event loop, so that a fork is safe. The forked processes are children of the root and outlive the zygote.
"""

import array
import gc
import importlib
import os
import select
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path

from coterie.orchestrator.processes.child_main import run_child
from coterie.orchestrator.processes.fork_handshake import COUNT_SIZE, ChildReport, PassedDescriptors
from coterie.orchestrator.processes.linux import die_with_parent, fork_sibling, set_title

TITLE = "coterie zygote"
DESCRIPTORS = 253
"""Maximum number of descriptors in one packet, a limit of the kernel."""
WHILE_IMPORTING = (2000, 20, 20)
"""Thresholds of the garbage collector during imports; with the default ones, imports take about ten percent longer."""


def main(arguments: Sequence[str]) -> int:
    """Import the modules, report that the zygote is ready, and fork a child per request until the socket is closed."""
    number, root, *names = arguments
    if not die_with_parent(int(root)):
        return 1
    set_title(TITLE)
    with socket.socket(fileno=int(number)) as requests:
        requests.set_inheritable(False)
        try:
            prepare(names)
        except Exception as exc:  # noqa: BLE001 - an import may raise anything; the caller gets it
            ChildReport.of_failure(exc).send(requests)
            return 1
        sys.stdout.flush()  # otherwise every child would print buffered output again
        # Excludes all existing objects from garbage collection, so that their pages stay shared with all children.
        gc.collect()
        gc.freeze()
        ChildReport(pid=os.getpid(), is_ready=True).send(requests)
        while request := _receive(requests):
            count, numbers = request
            try:
                _start_child(requests, int(root), count, numbers)
            finally:
                for passed in numbers:
                    os.close(passed)
    return 0


def prepare(names: Sequence[str]) -> None:
    """Import the modules (`package.module`) and call the functions (`package.module:function`) in *names*."""
    # The collector stays enabled, so that later imports reuse freed memory. If memory were freed only at the end,
    # children would fill the gaps, and each would copy the pages around them.
    thresholds = gc.get_threshold()
    gc.set_threshold(*WHILE_IMPORTING)
    try:
        for name in names:
            module, colon, function = name.partition(":")
            imported = importlib.import_module(module)
            if colon:
                getattr(imported, function)()
    finally:
        gc.set_threshold(*thresholds)


def _receive(requests: socket.socket) -> tuple[int, list[int]] | None:
    """Receive a request: the number of descriptors sent, and those received; None if the root closed the socket."""
    size = socket.CMSG_SPACE(DESCRIPTORS * array.array("i").itemsize)
    packet, ancillary, _, _ = requests.recvmsg(COUNT_SIZE, size, socket.MSG_CMSG_CLOEXEC)
    if not packet:
        return None
    numbers = array.array("i")
    for _, _, data in ancillary:
        numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    return int.from_bytes(packet), list(numbers)


def _start_child(requests: socket.socket, root: int, count: int, numbers: Sequence[int]) -> None:
    """Fork the requested child, or report why it cannot be forked. *count* is the number of descriptors sent."""
    if not numbers:
        return  # no report socket was received; the root reads end of file
    with socket.socket(fileno=os.dup(numbers[0])) as answer:
        if _is_abandoned(answer):
            return
        if len(numbers) < count:
            ChildReport(failure="the zygote has too many open files; raise the limit (ulimit -n)").send(answer)
        else:
            # Threads that Python does not know count too.
            threads = len(list(Path("/proc/self/task").iterdir()))
            assert threading.active_count() == threads == 1, "a fork is safe only with one thread"
            _fork(requests, root, PassedDescriptors.of(numbers), answer)


def _is_abandoned(answer: socket.socket) -> bool:
    """Return True if the root no longer waits for the requested child, for example because the zygote was paused."""
    poll = select.poll()
    poll.register(answer, 0)
    return bool(poll.poll(0))


def _fork(requests: socket.socket, root: int, passed: PassedDescriptors, answer: socket.socket) -> None:
    try:
        pid = fork_sibling()
    except OSError as exc:
        ChildReport.of_failure(exc).send(answer)
        return
    if pid:
        # The child reports its pid too, because the zygote may be killed here. It exits if the root does not listen.
        ChildReport(pid=pid).send(answer)
        return
    try:
        requests.close()
        answer.close()
        run_child(root, passed)
    except BaseException:  # noqa: BLE001 - the child must never return into the zygote's loop
        traceback.print_exc()
    finally:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
