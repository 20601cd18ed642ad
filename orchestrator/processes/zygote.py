"""Zygote: a process that has imported everything once and forks a child for each request.

`python -P -m coterie.orchestrator.processes.zygote SOCKET ROOT [NAME ...]`. It has one thread and never runs an event
loop while it serves, so a fork of it is whole. What it forks is the root's child, not its own, and outlives it.
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
"""That one packet can carry, a limit of the kernel."""
WHILE_IMPORTING = (2000, 20, 20)
"""Thresholds of the collector: by its own it takes a tenth of the time to look at what is there to stay."""


def main(arguments: Sequence[str]) -> int:
    """Get warm, say so, and serve until the socket is closed."""
    number, root, *names = arguments
    if not die_with_parent(int(root)):
        return 1
    set_title(TITLE)
    with socket.socket(fileno=int(number)) as requests:
        requests.set_inheritable(False)
        try:
            prepare(names)
        except Exception as exc:  # noqa: BLE001 - whatever a module raises belongs to who named it
            ChildReport.of_failure(exc).send(requests)
            return 1
        _keep_shared()
        ChildReport(pid=os.getpid(), is_ready=True).send(requests)
        _serve(requests, int(root))
    return 0


def prepare(names: Sequence[str]) -> None:
    """Import modules (`package.module`) and call functions (`package.module:function`)."""
    # With the collector on: what it frees is used again by the next import. Left to the end, its gaps would be filled
    # by children, each of which would copy the pages they are in.
    usual = gc.get_threshold()
    gc.set_threshold(*WHILE_IMPORTING)
    try:
        for name in names:
            module, colon, function = name.partition(":")
            imported = importlib.import_module(module)
            if colon:
                getattr(imported, function)()
    finally:
        gc.set_threshold(*usual)


def _keep_shared() -> None:
    """Let what lives now live for ever: the collector leaves it alone, and its pages stay shared with all children."""
    sys.stdout.flush()  # or every child would say again what a module has said
    gc.collect()
    gc.freeze()


def _serve(requests: socket.socket, root: int) -> None:
    while request := _receive(requests):
        count, numbers = request
        try:
            _start_child(requests, root, count, numbers)
        finally:
            for number in numbers:
                os.close(number)


def _receive(requests: socket.socket) -> tuple[int, list[int]] | None:
    """How many descriptors were sent, and those that came; None when the root has closed the socket."""
    room = socket.CMSG_SPACE(DESCRIPTORS * array.array("i").itemsize)
    packet, ancillary, _, _ = requests.recvmsg(COUNT_SIZE, room, socket.MSG_CMSG_CLOEXEC)
    if not packet:
        return None
    numbers = array.array("i")
    for _, _, data in ancillary:
        numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    return int.from_bytes(packet), list(numbers)


def _start_child(requests: socket.socket, root: int, count: int, numbers: Sequence[int]) -> None:
    """Fork the child; what prevents it is reported."""
    if not numbers:
        return  # not even a way to report came through: the root hears that nobody has it
    with socket.socket(fileno=os.dup(numbers[0])) as answer:
        if _is_abandoned(answer):
            return
        if len(numbers) < count:
            ChildReport(failure="the zygote has too many descriptors open").send(answer)
        else:
            assert threading.active_count() == _count_threads() == 1, "what is forked with threads is not whole"
            _fork(requests, root, PassedDescriptors.of(numbers), answer)


def _is_abandoned(answer: socket.socket) -> bool:
    """Whether the root, which may have waited long while this process was stopped, does not want the child any more."""
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
        # The child says so too, for the zygote may be killed here. It has an end by itself if nobody listens.
        ChildReport(pid=pid).send(answer)
        return
    try:
        requests.close()
        answer.close()
        run_child(root, passed)
    except BaseException:  # noqa: BLE001 - nothing may go on as the zygote that it is not
        traceback.print_exc()
    finally:
        os._exit(1)


def _count_threads() -> int:
    """Those that Python does not know of as well."""
    return len(list(Path("/proc/self/task").iterdir()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
