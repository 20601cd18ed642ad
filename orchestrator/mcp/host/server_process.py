"""Process of a stdio MCP server; it is owned until its whole process group has ended."""

import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import anyio
import attrs
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from coterie.files import Appender
from coterie.orchestrator.mcp.host_protocol import ServerSpec
from coterie.process_identity import wait_ended

LOG_LIMIT = 1024 * 1024
"""Bytes of a server's standard error that are logged."""
LONGEST_LINE = 2_000
"""Bytes of one logged line."""
GRACE = 2.0
"""Seconds after each step of stopping: closing stdin, SIGTERM, SIGKILL."""
STDERR_DRAIN_SECONDS = 0.2
"""Seconds in which the last standard error output of an ended server is read."""


class CannotStart(Exception):
    """The process could not be started; the text is the reason."""


@attrs.define(eq=False)
class ServerProcess:
    """A running or ended server process."""

    pid: int
    stdin: trio.lowlevel.FdStream
    stdout: trio.lowlevel.FdStream
    _process: "subprocess.Popen[bytes]"
    _server: ServerSpec
    last_line: str = ""
    """Last line of the server's standard error, without secrets."""
    _written: int = attrs.field(default=0, init=False)
    _is_silent: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set at the end of the server's standard error."""

    async def wait_ended(self) -> str:
        """Wait until the process has ended, and describe how; does not reap it."""
        await wait_ended(self.pid)
        with trio.move_on_after(STDERR_DRAIN_SECONDS):  # child processes of the server may keep the pipe open
            await self._is_silent.wait()
        status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # noqa: ASYNC222 - WNOHANG does not block
        assert status is not None
        if status.si_code == os.CLD_EXITED:
            how = f"its process ended with status {status.si_status}"
        else:
            how = f"its process was ended by {signal.Signals(status.si_status).name}"
        return f"{how}: {self.last_line}" if self.last_line else how

    async def keep_errors(self, stream: trio.lowlevel.FdStream, log: Path) -> None:
        """Append the server's standard error to *log*, up to a limit; the rest is read and dropped."""
        rest = b""
        with contextlib.closing(Appender.open(log)) as appender:
            async for chunk in stream:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines if len(rest) <= LONGEST_LINE else [*lines, rest]:
                    self._note(line, appender)
                rest = rest if len(rest) <= LONGEST_LINE else b""
            self._note(rest, appender)
        self._is_silent.set()

    def _note(self, line: bytes, appender: Appender) -> None:
        text = self._server.redact(line[:LONGEST_LINE].decode("utf-8", "replace")).strip()
        self.last_line = text or self.last_line
        if text and self._written < LOG_LIMIT:
            data = f"{text}\n".encode()
            self._written += len(data)
            appender.append(data)

    async def stop(self) -> None:
        """Close stdin, send SIGTERM, send SIGKILL, waiting after each; return when the process group has ended."""
        with trio.CancelScope(shield=True):
            await self.stdin.aclose()
            for number in (None, signal.SIGTERM, signal.SIGKILL):
                if number is not None:
                    self._signal(number)
                with trio.move_on_after(GRACE):
                    await wait_ended(self.pid)
                    break
            # Before the process is reaped, so that its group id cannot be reused.
            self._signal(signal.SIGKILL)
            await self.stdout.aclose()
            await trio.to_thread.run_sync(self._process.wait)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


@asynccontextmanager
async def open_process(server: ServerSpec, environment: Mapping[str, str], log: Path) -> AsyncIterator[ServerProcess]:
    """Run the program of *server* until the block ends; its standard error goes to *log*.

    Enter on the main thread. Raises `CannotStart`.
    """
    process = _start(server, environment)
    pipes = (process.stdin, process.stdout, process.stderr)
    stdin, stdout, stderr = (trio.lowlevel.FdStream(os.dup(pipe.fileno())) for pipe in pipes if pipe is not None)
    for pipe in pipes:
        assert pipe is not None
        pipe.close()
    running = ServerProcess(process.pid, stdin, stdout, process, server)
    async with stderr, trio.open_nursery() as nursery:
        nursery.start_soon(running.keep_errors, stderr, log)
        try:
            yield running
        finally:
            await running.stop()
            nursery.cancel_scope.cancel()


def _start(server: ServerSpec, environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(  # noqa: S603 - configured or approved by the user
            server.config.command,
            cwd=server.config.cwd,
            env={**environment, **server.config.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except (OSError, ValueError) as exc:
        raise CannotStart(f"{server.config.command[0]} cannot be started: {server.redact(str(exc))}") from exc


LONGEST_MESSAGE = 32 * 1024 * 1024
"""Longest line of a server's output, in bytes."""
MAX_OTHER_LINES = 1_000
"""Number of lines in one connection that may be other text than messages, such as a greeting."""

ReceivedItem: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[MemoryObjectReceiveStream[ReceivedItem], MemoryObjectSendStream[SessionMessage]]


@attrs.define(eq=False)
class StdioTransport:
    """The message streams of a stdio server."""

    _process: ServerProcess
    problem: str = ""
    """Protocol violation of the server, after which its output is no longer read."""
    is_over: trio.Event = attrs.field(factory=trio.Event)
    """Set when the output of the server is no longer read."""
    _other_lines: int = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Streams]:
        """Open the message streams in the form that the MCP package expects, until the block ends."""
        received_send, received = anyio.create_memory_object_stream[ReceivedItem](0)
        outgoing, outgoing_receive = anyio.create_memory_object_stream[SessionMessage](0)
        async with received, outgoing, trio.open_nursery() as nursery:
            nursery.start_soon(self._receive, received_send)
            nursery.start_soon(self._send, outgoing_receive)
            yield received, outgoing
            nursery.cancel_scope.cancel()

    async def _send(self, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with outgoing:
            async for message in outgoing:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await self._process.stdin.send_all(text.encode() + b"\n")
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return  # the server closed its input; the connection finds out

    async def _receive(self, received: MemoryObjectSendStream[ReceivedItem]) -> None:
        async with received:
            try:
                async for line in self._lines():
                    if (message := self._read(line)) is not None:
                        await received.send(message)
                    if self.problem:
                        break
            except (trio.BrokenResourceError, trio.ClosedResourceError, anyio.BrokenResourceError):
                pass  # closed by the server or by this process
            finally:
                self.is_over.set()

    async def _lines(self) -> AsyncIterator[bytes]:
        gathered = bytearray()
        async for chunk in self._process.stdout:
            begin = len(gathered)
            gathered += chunk
            while (end := gathered.find(b"\n", begin)) >= 0:
                yield bytes(gathered[:end])
                del gathered[: end + 1]
                begin = 0
            if len(gathered) > LONGEST_MESSAGE:
                self.problem = f"it wrote a line of over {LONGEST_MESSAGE // 1024**2} MB"
                return

    def _read(self, line: bytes) -> SessionMessage | None:
        if not line.strip():
            return None
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            self._other_lines += 1
            if self._other_lines > MAX_OTHER_LINES:
                self.problem = f"it wrote over {MAX_OTHER_LINES:,} lines to standard output that are not messages"
            return None
