"""Processes that send or read mail and ask a controller before every step at which a crash matters.

`python -m tests.mailbox.transports.file.step_process DESCRIPTOR` is a zygote: it forks one of them for every line that
it receives over that socket, so that killing many of them is cheap.
"""

import errno
import fcntl
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack
from io import BufferedRWPair
from pathlib import Path
from typing import Literal

import attrs
import msgspec
import trio

from coterie.clock import Clock
from coterie.files import Operation, file_faults
from coterie.mailbox.contract import Delivery, Inbox
from coterie.mailbox.dead_letters import DeadLetters
from coterie.mailbox.envelope import Envelope, MessageId
from coterie.mailbox.errors import MailboxError
from coterie.mailbox.transports.file.transport import Durability, FileTransport
from tests.mailbox.file_mail import Names

READER = "ada"
SEGMENT_BYTES = 800
"""Size of a segment: few messages, so that many segments are sealed."""

SYNCED = "-synced"
"""End of the name of a file with the synced sizes of the logs in a directory."""

Verdict = Literal["go", "free", "fail"] | int
"""Execute the step; execute it and all later steps; fail; write only part of the bytes."""

_AUDITED = {"open": "create", "os.chmod": "chmod", "os.remove": "remove", "os.mkdir": "mkdir", "fcntl.flock": "lock"}
"""Steps that the hook of `coterie.files` does not report."""


@attrs.frozen(kw_only=True)
class Place:
    """Mailbox and user of a process."""

    root: str
    durability: Durability


@attrs.frozen(kw_only=True)
class Command:
    """Command for a process."""

    do: Literal["send", "open", "take", "acknowledge", "close"]
    envelope: Envelope | None = None
    ids: tuple[MessageId, ...] = ()
    """Ids in the transcript, or ids to acknowledge."""
    limit: int | None = None


@attrs.frozen(kw_only=True)
class Step:
    """Step at which a process waits; *reply* is the last one: the work is done, but not yet reported."""

    operation: str
    name: str = ""
    size: int = 0


@attrs.frozen(kw_only=True)
class Outcome:
    """Result of a command: done, or failed."""

    error: str | None = None
    deliveries: tuple[Delivery, ...] = ()


@attrs.frozen(kw_only=True)
class Report:
    """Report of a process: a step or an outcome."""

    step: Step | None = None
    outcome: Outcome | None = None


@attrs.define(eq=False)
class StepChannel:
    """Asks the controller at the other end of *line* before every step of a command, and follows its verdict."""

    line: BufferedRWPair
    root: str
    synced: int
    """Descriptor of a file for inode and size of each synced log."""
    is_on: bool = False

    def before(self, operation: Operation, path: Path, size: int) -> int:
        """As `FaultHook.before`."""
        verdict = self.ask(Step(operation=operation, name=path.name, size=size))
        if verdict == "fail":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        if operation == "fsync" and path.suffix == ".log" and path.exists():  # it may be read and deleted already
            status = path.stat()
            os.write(self.synced, b"%d %d\n" % (status.st_ino, status.st_size))
        return verdict if isinstance(verdict, int) else size

    def audit(self, event: str, details: tuple[object, ...]) -> None:
        """Hook of `sys.addaudithook`; only a crash can be injected here, no error."""
        if self.is_on and event in _AUDITED and (name := self._name(event, details)) is not None:
            is_unlocking = event == "fcntl.flock" and details[1] == fcntl.LOCK_UN
            self.ask(Step(operation="unlock" if is_unlocking else _AUDITED[event], name=name))

    def probe(self) -> None:
        """Ask also after every `pread` of a log, which is not audited, so that the process can be stopped there."""
        look = os.pread

        def pread(descriptor: int, size: int, offset: int) -> bytes:
            content = look(descriptor, size, offset)
            self.ask(Step(operation="read", name=str(offset), size=len(content)))
            return content

        os.pread = pread

    def ask(self, step: Step) -> Verdict:
        """Return the verdict about *step*."""
        if not self.is_on:
            return "go"
        self.send(Report(step=step))
        verdict: Verdict = msgspec.json.decode(self.receive(), type=Verdict)
        self.is_on = verdict != "free"
        return verdict

    def send(self, report: Report) -> None:
        """Send one line."""
        self.line.write(msgspec.json.encode(report) + b"\n")
        self.line.flush()

    def receive(self) -> bytes:
        """Return the next line; exit this process if the controller is gone."""
        return self.line.readline() or sys.exit(0)

    def _name(self, event: str, details: tuple[object, ...]) -> str | None:
        path, is_file = details[0], True
        if event == "open":
            flags = details[2]
            is_file = isinstance(flags, int) and bool(flags & os.O_CREAT) and not str(path).endswith(".lock")
        if isinstance(path, int):
            path = Path(f"/proc/self/fd/{path}").readlink()
        return Path(str(path)).name if is_file and str(path).startswith(self.root) else None


@attrs.define(eq=False)
class Mailer:
    """Executes commands one after the other."""

    asking: StepChannel
    transport: FileTransport
    _held: AsyncExitStack = attrs.field(factory=AsyncExitStack, init=False)
    _inbox: Inbox | None = attrs.field(default=None, init=False)

    async def run(self) -> None:
        """Run until the controller is gone."""
        while True:
            command = msgspec.json.decode(self.asking.receive(), type=Command)
            self.asking.is_on = True
            try:
                outcome = await self._do(command)
            except MailboxError as exc:
                outcome = Outcome(error=type(exc).__name__)
            self.asking.ask(Step(operation="reply"))
            self.asking.is_on = False
            self.asking.send(Report(outcome=outcome))

    async def _do(self, command: Command) -> Outcome:
        if command.envelope is not None:
            await self.transport.send(command.envelope)
        elif command.do == "open":
            opened = self.transport.open_inbox(READER, 1, seen=frozenset(command.ids))
            self._inbox = await self._held.enter_async_context(opened)
        elif command.do == "close":
            await self._held.aclose()
        else:
            assert self._inbox is not None
            if command.do == "take":
                return Outcome(deliveries=tuple(self._inbox.take_nowait(command.limit)))
            await self._inbox.acknowledge(command.ids)
        return Outcome()


def serve(line: BufferedRWPair, place: Place) -> None:
    """Serve commands until the other end of *line* is closed."""
    root = Path(place.root)
    asking = StepChannel(line, place.root, os.open(f"{root}{SYNCED}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    transport = FileTransport(
        root,
        Names((READER, "bob", "cyd", "dan")),
        None,
        Clock(),
        DeadLetters(root / "dead").add,
        durability=place.durability,
        segment_bytes=SEGMENT_BYTES,
    )
    asking.probe()
    sys.addaudithook(asking.audit)
    with file_faults(asking):
        trio.run(Mailer(asking, transport).run)


def fork_all(orders: socket.socket) -> None:
    """Fork a process for every line with a place, and reply with its pid."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps them
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, 65_536, 1)
        if not order:
            return
        with socket.socket(fileno=descriptors[0]) as connection:
            if (pid := os.fork()) == 0:
                orders.close()
                serve(connection.makefile("rwb"), msgspec.json.decode(order, type=Place))
                return
        orders.send(b"%d" % pid)


if __name__ == "__main__":
    fork_all(socket.socket(fileno=int(sys.argv[1])))
