"""HTTP server on 127.0.0.1 that receives whole requests and passes them to an application."""

import contextlib
import errno
import resource
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

import attrs
import trio

from coterie.scenarios.api_server.http.http_connection import ClientGone, HttpConnection, HttpLimits, HttpRequest
from coterie.scenarios.api_server.request.errors import ApiError

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


@attrs.define(eq=False)
class Responder:
    """Sends the answer to one request: complete with `send`, or in parts with `start`, `write` and `finish`.

    These methods raise `ClientGone` if the client cannot be reached. A cancelled write leaves an incomplete answer;
    later writes then raise `ClientGone` too.
    """

    _connection: HttpConnection
    begun: bool = False
    """True if bytes of the answer may have been sent, so that its status can no longer change."""

    async def send(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        """Send a complete answer in one write, with a content-length unless *status* is 204."""
        self.begun = True
        await self._connection.send_whole(status, headers, body)

    async def start(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Send status and headers of a streamed answer: chunked, or for HTTP/1.0 ended by closing the connection."""
        self.begun = True
        await self._connection.send_head(status, headers)

    async def write(self, data: bytes) -> None:
        """Send *data* as the next part of the streamed answer, in one write."""
        await self._connection.send_part(data)

    async def finish(self) -> None:
        """End the streamed answer, so that the client knows that the body is complete."""
        await self._connection.send_end()

    async def abort(self) -> None:
        """Drop the connection immediately with a TCP reset; data that the client has not read is lost."""
        self._connection.reset()
        await trio.lowlevel.checkpoint()

    @contextlib.asynccontextmanager
    async def while_connected(self) -> AsyncIterator[None]:
        """Run the block of `async with`; if the client disconnects, cancel the block and raise `ClientGone`.

        Starts a task, so use it around waits only. A client that closed only its sending side counts as disconnected,
        because the server cannot distinguish the two cases. An exception of the block is raised unchanged, never in a
        group.
        """
        gone = False
        failure: Exception | None = None

        async def watch(body: trio.CancelScope) -> None:
            nonlocal gone
            await self._connection.wait_gone()
            gone = True
            body.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch, nursery.cancel_scope)
            try:
                yield
            except Exception as exc:  # noqa: BLE001 - re-raised after the nursery, which would put it in a group
                failure = exc
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if gone:
            raise ClientGone


class Application(Protocol):
    """Interface of an application that answers the requests that `serve_http` receives."""

    async def handle(self, request: HttpRequest, respond: Responder) -> None:
        """Answer *request* through *respond*.

        May raise `ClientGone`, alone or in a group; any other exception ends the server. If the answer is incomplete on
        return, the connection is closed.
        """
        ...

    def refusal(self, error: ApiError) -> tuple[Sequence[tuple[str, str]], bytes]:
        """Return headers and body of the error response to a request that could not be read, such as one too large."""
        ...


async def serve_http(
    application: Application,
    *,
    port: int = 0,
    limits: HttpLimits = HttpLimits(),  # noqa: B008 - frozen
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *application* on 127.0.0.1 until cancelled, which closes every connection.

    Reports the port to `nursery.start` once it accepts connections; port 0 selects a free port. Raises `OSError` if the
    port cannot be bound. Also raises the limit of open files of this process to its maximum.
    """
    _raise_descriptor_limit()
    (listener,) = await trio.open_tcp_listeners(port, host="127.0.0.1")
    slots = trio.Semaphore(limits.connections)
    # Closed without the checkpoint of `aclose`, where a cancellation would replace an exception of the application.
    with contextlib.closing(listener.socket) as listening:
        async with trio.open_nursery() as nursery:
            task_status.started(listening.getsockname()[1])
            while True:
                await slots.acquire()
                connection = HttpConnection(await _accept(listener), limits)
                nursery.start_soon(_serve_connection, application, connection, slots)


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # A kernel may refuse its own infinite hard limit; the soft limit then stays.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _accept(listener: trio.SocketListener) -> trio.SocketStream:
    while True:
        try:
            return await listener.accept()
        except OSError as exc:
            if exc.errno not in _EXHAUSTED:
                raise
        # Wait for closing connections to return descriptors; new ones wait in the kernel's queue.
        await trio.sleep(0.1)


async def _serve_connection(application: Application, connection: HttpConnection, slots: trio.Semaphore) -> None:
    try:
        while await _serve_request(application, connection):
            pass
        await connection.close_gently()
    except* ClientGone:
        pass
    finally:
        # Without a checkpoint, as in `serve_http`.
        connection.close()
        slots.release()


async def _serve_request(application: Application, connection: HttpConnection) -> bool:
    """Read and answer one request; return False if the connection must be closed after it."""
    try:
        request = await connection.read_request()
    except ApiError as error:
        headers, body = application.refusal(error)
        await connection.send_whole(error.status, [*headers, ("connection", "close")], body)
        return False
    handling = application.handle(request, Responder(connection))
    # Free the request: a streamed answer may take minutes.
    del request
    await handling
    return connection.begin_next()
