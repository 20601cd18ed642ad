"""Process of a stdio MCP server (one that exchanges messages over stdin and stdout): start, transport, log and stop."""

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
"""Maximum number of bytes of standard error that one server process can write to its log."""
LONGEST_LINE = 2_000
"""Maximum number of bytes of one logged line of standard error; a longer line is cut or split."""
GRACE = 2.0
"""Seconds to wait for the end of a server after each step to stop it: closing stdin, SIGTERM, SIGKILL."""
STDERR_DRAIN_SECONDS = 0.2
"""Maximum number of seconds to read the remaining standard error of a server that has exited."""


class CannotStart(Exception):
    """The program of an MCP server could not be started; the message is the reason."""


@attrs.define(eq=False)
class ServerProcess:
    """Process of one stdio MCP server, running or ended, with its pipes."""

    pid: int
    stdin: trio.lowlevel.FdStream
    stdout: trio.lowlevel.FdStream
    _process: "subprocess.Popen[bytes]"
    _server: ServerSpec
    last_line: str = ""
    """Last nonempty line of the server's standard error, with secrets replaced by `***`."""
    _written: int = attrs.field(default=0, init=False)
    _is_silent: trio.Event = attrs.field(factory=trio.Event, init=False)
    """Set when the server's standard error has been read to its end."""

    async def wait_ended(self) -> str:
        """Wait for the end of the process, but do not reap it; return its status or signal, and last error line."""
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
        """Copy the server's standard error, without secrets, from *stream* to *log*, up to `LOG_LIMIT` bytes."""
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
        """Stop the server: close stdin, then SIGTERM, then SIGKILL. Kill its process group, reap it, then return."""
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
    """Start the program of *server*, yield its process, and stop it when the block ends; *log* gets its standard error.

    Enter the block on the main thread. Raises `CannotStart`.
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
        raise CannotStart(f"the program did not start; correct `command` or `cwd`: {server.redact(str(exc))}") from exc


LONGEST_MESSAGE = 32 * 1024 * 1024
"""Maximum length in bytes of a line that a server writes to standard output; a longer line ends the connection."""
MAX_OTHER_LINES = 1_000
"""Maximum number of lines on standard output that are not MCP messages; the next such line ends the connection."""

ReceivedItem: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[MemoryObjectReceiveStream[ReceivedItem], MemoryObjectSendStream[SessionMessage]]


@attrs.define(eq=False)
class StdioTransport:
    """Transport for the `mcp` package: converts MCP messages to and from lines on stdin and stdout of a server."""

    _process: ServerProcess
    problem: str = ""
    """Description of the server's protocol violation, after which its output is not read; empty if there is none."""
    is_over: trio.Event = attrs.field(factory=trio.Event)
    """Set when the server's output is no longer read, because it ended or broke the protocol, or the host closed it."""
    _other_lines: int = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Streams]:
        """Yield streams of received and outgoing messages, as the `mcp` package expects them, until the block ends."""
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
                self.problem = (
                    f"the server wrote a line of over {LONGEST_MESSAGE // 1024**2} MB, the limit of one message"
                )
                return

    def _read(self, line: bytes) -> SessionMessage | None:
        if not line.strip():
            return None
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            self._other_lines += 1
            if self._other_lines > MAX_OTHER_LINES:
                self.problem = f"the server wrote over {MAX_OTHER_LINES:,} lines that are no messages; log to stderr"
            return None
