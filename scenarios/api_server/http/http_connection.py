"""HTTP/1.1 connection of the embedded server: reads whole requests and sends answers, with limits of time and size."""

import contextlib
import socket
import struct
from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, unquote

import attrs
import h11
import trio

from coterie.scenarios.api_server.request.errors import ApiError, invalid_request

RECEIVE_BYTES = 64 * 1024
"""Maximum bytes of one read, and of data from the client that is kept while its earlier request is answered."""

LINGER_BYTES = 64 * 1024 * 1024
"""Maximum bytes that are read and discarded before the connection closes: twice the largest permitted request body."""

Headers = Sequence[tuple[str, str]]


class ClientGone(Exception):
    """The client closed or reset the connection, stopped reading, or sent no request in time; no answer can be sent."""


@attrs.frozen(kw_only=True)
class HttpLimits:
    """Limits of the HTTP server: times in seconds, sizes in bytes, and the number of connections."""

    headers_within: float = 10.0
    """Time limit for the first byte of a new connection, and from the first byte of a request to the end of its
    headers.
    """
    body_within: float = 60.0
    idle: float = 75.0
    """Time that a connection stays open after an answer while the client sends no further request."""
    body: int = 32 * 1024 * 1024
    header_bytes: int = 64 * 1024
    connections: int = 4096
    """Maximum number of concurrent connections; further connections wait in the kernel's queue."""
    write_within: float = 60.0
    """Time limit of one write; the connection of a client that does not read is then reset."""
    linger: float = 2.0
    """Time after the last answer in which the client can read the answer and close the connection."""


@attrs.frozen(kw_only=True)
class HttpRequest:
    """An HTTP request that was received completely, including its body."""

    method: str
    path: str
    """Percent-decoded path; invalid escapes are kept."""
    query: Mapping[str, str]
    """Query parameters by name; a repeated name has its last value."""
    headers: Mapping[str, str]
    """Headers by lower-case name; values of a repeated name are joined by a comma."""
    body: bytes


@attrs.define(eq=False)
class HttpConnection:
    """Server side of one client connection, with its HTTP/1.1 protocol state. The caller must close the connection."""

    stream: trio.SocketStream
    limits: HttpLimits
    _protocol: h11.Connection = attrs.field(init=False)
    _timeout: float = attrs.field(init=False)
    _headless: bool = attrs.field(init=False, default=False)
    _intact: bool = attrs.field(init=False, default=True)

    def __attrs_post_init__(self) -> None:
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=self.limits.header_bytes)
        self._timeout = self.limits.headers_within

    async def read_request(self) -> HttpRequest:
        """Read the next request.

        Raises `ApiError` if the request is invalid, too large or too slow; the caller must send this error and then
        close the connection. Raises `ClientGone` if the client closed the connection, or sent nothing before the
        timeout.
        """
        self._headless = False
        try:
            head = await self._read_head()
            self._headless = head.method == b"HEAD"
            headers = self._accept_head(head)
            body = await self._read_body()
        except h11.RemoteProtocolError as exc:
            if exc.error_status_hint == 431:
                raise self._headers_too_large() from exc
            raise invalid_request(f"The request is not valid HTTP: {exc!s:.200}") from exc
        path, query = _split_target(head.target.decode("ascii"))
        method = head.method.decode("ascii")
        return HttpRequest(method=method, path=path, query=query, headers=headers, body=body)

    def begin_next(self) -> bool:
        """Prepare for the next request; False if the connection must be closed: answer incomplete, or client asked."""
        done = self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE
        if done and self._intact:
            self._protocol.start_next_cycle()
            self._timeout = self.limits.idle
            return True
        return False

    async def send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a complete answer in one write; without a body for a HEAD request, and for the statuses 204 and 304."""
        length = () if status == 204 else (("content-length", str(len(body))),)
        response = h11.Response(status_code=status, headers=[*headers, *length])
        content = b"" if self._headless or status in (204, 304) else body
        await self._send(response, h11.Data(data=content), h11.EndOfMessage())

    async def send_head(self, status: int, headers: Headers) -> None:
        """Send the status and headers of an answer whose body follows with `send_part`."""
        await self._send(h11.Response(status_code=status, headers=list(headers)))

    async def send_part(self, data: bytes) -> None:
        """Send *data* as the next part of the answer's body; does nothing for a HEAD request or empty *data*."""
        if data and not self._headless:
            await self._send(h11.Data(data=data))

    async def send_end(self) -> None:
        """End the answer that `send_head` started."""
        await self._send(h11.EndOfMessage())

    async def wait_gone(self) -> None:
        """Wait until the client has closed or reset the connection.

        Data that arrives meanwhile is kept for the next request. After `RECEIVE_BYTES` bytes the method stops reading
        and never returns; then only a write detects that the client has closed.
        """
        with contextlib.suppress(ClientGone):
            while len(self._protocol.trailing_data[0]) < RECEIVE_BYTES:
                await self._receive()
            await trio.sleep_forever()

    def close(self) -> None:
        """Close the socket immediately; a second call does nothing."""
        self.stream.socket.close()

    def reset(self) -> None:
        """Close the socket immediately with a TCP reset, so that the client sees a broken connection."""
        with contextlib.suppress(OSError):
            self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    async def close_gently(self) -> None:
        """Close the sending side, then read and discard data from the client until it closes or a limit is reached.

        If a socket with unread bytes is closed, the kernel resets the connection, which can destroy an answer that the
        client has not read yet.
        """
        left = LINGER_BYTES
        with trio.move_on_after(self.limits.linger), contextlib.suppress(*_GONE):
            await self.stream.send_eof()
            while left > 0 and (data := await self.stream.receive_some(RECEIVE_BYTES)):
                left -= len(data)

    async def _read_head(self) -> h11.Request:
        event = self._protocol.next_event()
        if event is h11.NEED_DATA and not self._protocol.trailing_data[0]:
            with trio.move_on_after(self._timeout) as limit:
                await self._receive()
            if limit.cancelled_caught:
                raise ClientGone
            event = self._protocol.next_event()
        if event is h11.NEED_DATA:
            with trio.move_on_after(self.limits.headers_within):
                while event is h11.NEED_DATA:
                    await self._receive()
                    event = self._protocol.next_event()
        if event is h11.NEED_DATA:
            raise _too_slow("headers")
        assert isinstance(event, h11.Request)
        return event

    def _accept_head(self, head: h11.Request) -> dict[str, str]:
        headers = _join_headers(head)
        # h11 does not limit headers that arrive complete in one read, so their size is checked here.
        if sum(map(len, headers)) + sum(map(len, headers.values())) + len(head.target) > self.limits.header_bytes:
            raise self._headers_too_large()
        if head.method == b"CONNECT":
            raise invalid_request("CONNECT is not served: this server is no proxy")
        if int(headers.get("content-length", "0")) > self.limits.body:
            raise _too_large()
        return headers

    async def _read_body(self) -> bytes:
        # One growing buffer: a list of chunks would cost sixty bytes for each one-byte chunk.
        body = bytearray()
        whole = self._collect(body)
        if not whole:
            with trio.move_on_after(self.limits.body_within):
                while not whole:
                    if self._protocol.they_are_waiting_for_100_continue:
                        await self._send(h11.InformationalResponse(status_code=100, headers=[]))
                    await self._receive()
                    whole = self._collect(body)
        if not whole:
            raise _too_slow("body")
        return bytes(body)

    def _collect(self, body: bytearray) -> bool:
        """Append the received data to *body*; return True at its end. Raises `ApiError` (413) if it is too large."""
        while (event := self._protocol.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.EndOfMessage):
                return True
            assert isinstance(event, h11.Data)
            body += event.data
            if len(body) > self.limits.body:
                raise _too_large()
        return False

    async def _receive(self) -> None:
        try:
            data = await self.stream.receive_some(RECEIVE_BYTES)
        except _GONE as exc:
            raise ClientGone from exc
        if not data:
            raise ClientGone
        self._protocol.receive_data(data)

    async def _send(self, *events: h11.Event) -> None:
        if not self._intact:
            raise ClientGone
        pieces: list[bytes] = []
        for event in events:
            pieces += self._protocol.send_with_data_passthrough(event) or ()
        # After an incomplete write, also by cancellation, nothing more may be sent on this connection.
        self._intact = False
        try:
            with trio.fail_after(self.limits.write_within):
                await self.stream.send_all(b"".join(pieces))
        except trio.TooSlowError as exc:
            self.reset()
            raise ClientGone from exc
        except _GONE as exc:
            raise ClientGone from exc
        self._intact = True

    def _headers_too_large(self) -> ApiError:
        limit = self.limits.header_bytes
        return ApiError(431, "invalid_request_error", f"Request headers exceed {limit} bytes")


_GONE = (trio.BrokenResourceError, trio.ClosedResourceError)


def _too_large() -> ApiError:
    return ApiError(413, "request_too_large", "Request exceeds the maximum size")


def _too_slow(part: str) -> ApiError:
    return ApiError(408, "timeout_error", f"The request's {part} did not arrive in time")


def _join_headers(head: h11.Request) -> dict[str, str]:
    joined: dict[str, str] = {}
    for raw_name, raw_value in head.headers.raw_items():
        name, value = raw_name.decode("ascii").lower(), raw_value.decode("latin-1")
        joined[name] = f"{joined[name]}, {value}" if name in joined else value
    return joined


def _split_target(target: str) -> tuple[str, dict[str, str]]:
    if target.startswith(("http://", "https://")):
        # Clients send the absolute form to proxies; every server must accept it.
        target = "/" + target.split("://", 1)[1].partition("/")[2]
    path, _, query = target.partition("?")
    return unquote(path), dict(parse_qsl(query, keep_blank_values=True)) if query else {}
