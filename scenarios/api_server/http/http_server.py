"""HTTP server on loopback that passes whole requests to an application."""

import contextlib
import errno
import ipaddress
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
    """The answer to one request: sent whole, or started, written and finished.

    Every method raises `ClientGone` when the peer cannot be reached. A write that is cancelled half-way leaves
    the answer cut off; later ones then raise `ClientGone` too.
    """

    _connection: HttpConnection
    begun: bool = False
    """Whether bytes of the answer may have left."""

    async def send(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        """Answer whole, with a content-length, in one socket write."""
        self.begun = True
        await self._connection.send_whole(status, headers, body)

    async def start(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        """Begin a stream: chunked, or until close for HTTP/1.0."""
        self.begun = True
        await self._connection.send_head(status, headers)

    async def write(self, data: bytes) -> None:
        """Add *data* to the stream in one socket write."""
        await self._connection.send_part(data)

    async def finish(self) -> None:
        """End the stream; the connection is then ready for another request."""
        await self._connection.send_end()

    async def abort(self) -> None:
        """Drop the connection at once with a TCP reset; what the peer has not yet read is lost."""
        self._connection.reset()
        await trio.lowlevel.checkpoint()

    @contextlib.asynccontextmanager
    async def while_connected(self) -> AsyncIterator[None]:
        """Cancel the body and raise `ClientGone` when the peer closes.

        Costs a task, so it belongs around waits only. A peer that merely closed its sending side counts as
        gone: the two look alike. An error of the body leaves as it was raised, never in a group.
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
            except Exception as exc:  # noqa: BLE001 - carried past the nursery, which would put it in a group
                failure = exc
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if gone:
            raise ClientGone


class Application(Protocol):
    """What answers requests."""

    async def handle(self, request: HttpRequest, respond: Responder) -> None:
        """Answer *request*.

        `ClientGone` may leave it, alone or in a group; anything else that does ends the server. An answer that
        is not finished on return is cut off by closing the connection.
        """
        ...

    def refusal(self, error: ApiError) -> tuple[Sequence[tuple[str, str]], bytes]:
        """Headers and body of the answer to what never became a request."""
        ...


async def serve_http(
    application: Application,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    limits: HttpLimits = HttpLimits(),  # noqa: B008 - frozen
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *application* until cancelled, which closes every connection; reports the port once it listens.

    Raises `ValueError` for a host that is not loopback, and `OSError` when the port cannot be had.
    """
    address = _loopback(host)
    _raise_descriptor_limit()
    (listener,) = await trio.open_tcp_listeners(port, host=address)
    slots = trio.Semaphore(limits.connections)
    # Closed without the checkpoint of `aclose`, where a cancellation would take the place of an application's error.
    with contextlib.closing(listener.socket) as door:
        async with trio.open_nursery() as nursery:
            task_status.started(door.getsockname()[1])
            while True:
                await slots.acquire()
                connection = HttpConnection(await _accept(listener), limits)
                nursery.start_soon(_serve_connection, application, connection, slots)


def _loopback(host: str) -> str:
    address = "127.0.0.1" if host == "localhost" else host
    try:
        if ipaddress.ip_address(address).is_loopback:
            return address
    except ValueError:
        pass
    raise ValueError(f"the embedded server listens on loopback only, not on {host!r}")


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # A kernel may refuse its own hard limit when that is infinite; the soft one then has to do.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _accept(listener: trio.SocketListener) -> trio.SocketStream:
    while True:
        try:
            return await listener.accept()
        except OSError as exc:
            if exc.errno not in _EXHAUSTED:
                raise
        # Connections that end give descriptors back; until then the queue is the kernel's.
        await trio.sleep(0.1)


async def _serve_connection(application: Application, connection: HttpConnection, slots: trio.Semaphore) -> None:
    try:
        while await _serve_request(application, connection):
            pass
        await connection.close_gently()
    except* ClientGone:
        pass
    finally:
        # Again without a checkpoint.
        connection.close()
        slots.release()


async def _serve_request(application: Application, connection: HttpConnection) -> bool:
    """Answer one request; False when it was the connection's last."""
    try:
        request = await connection.read_request()
    except ApiError as error:
        headers, body = application.refusal(error)
        await connection.send_whole(error.status, [*headers, ("connection", "close")], body)
        return False
    handling = application.handle(request, Responder(connection))
    # A stream may last for minutes; its request's body must not.
    del request
    await handling
    return connection.begin_next()
