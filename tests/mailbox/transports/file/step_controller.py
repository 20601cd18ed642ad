"""Controller of processes that run step by step; the counterpart of `step_process`."""

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
"""Seconds after which a silent process counts as broken."""


@attrs.define(eq=False)
class SteppedProcess:
    """A process that sends or reads mail."""

    _pidfd: int
    _connection: socket.socket
    _line: BufferedRWPair
    command: Command | None = None
    """Current command; None if idle."""
    at: Step | None = None
    """Next step, executed when the controller allows it."""

    def begin(self, command: Command) -> Outcome | None:
        """Start *command* and run it to its first step."""
        assert self.command is None, "it is busy"
        self.command = command
        self._write_line(msgspec.json.encode(command))
        return self.wait_for_step()

    def let(self, verdict: Verdict) -> None:
        """Let the process continue; `wait_for_step` returns how far."""
        self._write_line(msgspec.json.encode(verdict))

    def wait_for_step(self) -> Outcome | None:
        """Wait until the process reaches another step, or the command ends."""
        report = msgspec.json.decode(self._line.readline(), type=Report)
        self.at = report.step
        if report.outcome is not None:
            self.command = None
        return report.outcome

    def kill(self) -> None:
        """Kill the process at its current step. When this returns it is gone, with all its locks."""
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
    """Process from which stepped processes are forked."""

    _orders: socket.socket

    def fork(self, place: Place) -> SteppedProcess:
        """Fork a process that works at *place*."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._orders, [msgspec.json.encode(place)], [theirs.fileno()])
        pidfd = os.pidfd_open(int(self._orders.recv(64)))
        ours.settimeout(PATIENCE)
        return SteppedProcess(pidfd, ours, ours.makefile("rwb"))


@contextmanager
def open_zygote() -> Iterator[Zygote]:
    """Start the zygote; its children must be killed before the block ends."""
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
