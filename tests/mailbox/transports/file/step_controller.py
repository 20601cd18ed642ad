"""Controller of processes that run step by step; the other end of `step_process`."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedRWPair
from pathlib import Path

import attrs
import msgspec

from tests.mailbox.transports.file.step_process import Command, Outcome, Place, Report, Step, Verdict

ROOT = Path(__file__).parents[4]
PATIENCE = 30.0
"""Seconds after which a process that says nothing is broken."""


@attrs.define(eq=False)
class SteppedProcess:
    """A process that sends or reads mail."""

    _pidfd: int
    _connection: socket.socket
    _line: BufferedRWPair
    command: Command | None = None
    """What it is about; None when it has nothing to do."""
    at: Step | None = None
    """What it will do next, when it is let."""

    def begin(self, command: Command) -> Outcome | None:
        """Have it go to the first step of *command*."""
        assert self.command is None, "it is busy"
        self.command = command
        self._write_line(msgspec.json.encode(command))
        return self.wait_for_step()

    def let(self, verdict: Verdict) -> None:
        """Have it go on; `hear` says how far it came."""
        self._write_line(msgspec.json.encode(verdict))

    def wait_for_step(self) -> Outcome | None:
        """Wait until it stands at another step, or the command is over."""
        report = msgspec.json.decode(self._line.readline(), type=Report)
        self.at = report.step
        if report.outcome is not None:
            self.command = None
        return report.outcome

    def kill(self) -> None:
        """Kill it, wherever it stands. When this returns it is gone, with all its locks."""
        signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        gone, _, _ = select.select([self._pidfd], [], [], PATIENCE)
        assert gone, "it does not die"
        os.close(self._pidfd)
        self._line.close()
        self._connection.close()

    def _write_line(self, content: bytes) -> None:
        self._line.write(content + b"\n")
        self._line.flush()


@attrs.frozen
class Zygote:
    """Where such processes come from."""

    _orders: socket.socket

    def fork(self, place: Place) -> SteppedProcess:
        """One that works there."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._orders, [msgspec.json.encode(place)], [theirs.fileno()])
        pidfd = os.pidfd_open(int(self._orders.recv(64)))
        ours.settimeout(PATIENCE)
        return SteppedProcess(pidfd, ours, ours.makefile("rwb"))


@contextmanager
def open_zygote() -> Iterator[Zygote]:
    """Start it; what it forked must be killed before the block ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        command = [sys.executable, "-m", "tests.mailbox.transports.file.step_process", str(theirs.fileno())]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
        theirs.close()
        try:
            yield Zygote(ours)
        finally:
            ours.close()
            process.wait(PATIENCE)
