import contextlib

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from coterie.scenarios.api_server.http.http_connection import ClientGone, HttpRequest
from coterie.scenarios.api_server.http.http_server import Responder
from tests.examples import examples
from tests.scenarios.api_server.http.http_peer import (
    HASTY,
    LAST_GET,
    ROOT_GET,
    SMALL,
    HttpAnswer,
    assert_serves,
    connect,
    read_to_end,
    reset,
    serving,
    talk,
)


@pytest.mark.parametrize("how", ["closes", "resets"])
async def test_a_wait_is_cancelled_when_the_peer_leaves(how: str) -> None:
    seen: list[str] = []

    async def wait_to_be_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            seen.append("cancelled")

    async def wait(_: HttpRequest, respond: Responder) -> None:
        with pytest.raises(ClientGone):
            async with respond.while_connected():
                await wait_to_be_cancelled()
        seen.append("gone")
        raise ClientGone

    async with serving(wait) as port:
        stream = await connect(port)
        await stream.send_all(ROOT_GET)
        await wait_all_tasks_blocked()
        if how == "resets":
            reset(stream)
        await stream.aclose()
        await wait_all_tasks_blocked()
    assert seen == ["cancelled", "gone"]


async def test_an_error_in_a_wait_leaves_it_bare() -> None:
    async def fail(_: HttpRequest, respond: Responder) -> None:
        with pytest.raises(LookupError):
            async with respond.while_connected():
                raise LookupError
        await respond.send(200, [], b"")

    async with serving(fail) as port:
        await assert_serves(port)


async def test_a_request_sent_ahead_during_a_wait_is_kept_but_a_flood_not_read_without_end() -> None:
    waiting, release = trio.Event(), trio.Event()

    async def wait(request: HttpRequest, respond: Responder) -> None:
        async with respond.while_connected():
            waiting.set()
            await release.wait()
        await respond.send(200, [], request.path.encode())

    async with serving(wait) as port, await connect(port) as stream, await connect(port) as flooding:
        await stream.send_all(ROOT_GET.replace(b"/ ", b"/first "))
        await flooding.send_all(ROOT_GET)
        await waiting.wait()
        await stream.send_all(LAST_GET.replace(b"/ ", b"/second "))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(flooding.send_all, b"x" * 30_000_000)
            await wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 1
            nursery.cancel_scope.cancel()
        release.set()
        raw = await read_to_end(stream)
        assert HttpAnswer.parse(await flooding.receive_some()).status == 200
    assert raw.index(b"/first") < raw.index(b"/second")


@pytest.mark.parametrize("grouped", [False, True])
async def test_a_write_to_a_gone_peer_ends_its_connection_alone(*, grouped: bool) -> None:
    ended = trio.Event()

    async def pour(respond: Responder) -> None:
        try:
            while True:
                await respond.write(b"x" * 1000)
        finally:
            ended.set()

    async def answer(request: HttpRequest, respond: Responder) -> None:
        await respond.start(200, [])
        if request.path == "/pour":
            async with trio.open_nursery() as nursery:
                if grouped:
                    nursery.start_soon(pour, respond)
                else:
                    await pour(respond)
        await respond.finish()

    async with serving(answer) as port:
        stream = await connect(port)
        await stream.send_all(ROOT_GET.replace(b"/ ", b"/pour "))
        await stream.receive_some()
        await stream.aclose()
        await ended.wait()
        await assert_serves(port)


async def test_a_peer_that_stops_reading_is_dropped() -> None:
    gone = trio.Event()

    async def pour(_: HttpRequest, respond: Responder) -> None:
        await respond.start(200, [])
        try:
            await respond.write(b"x" * 50_000_000)
        except ClientGone:
            gone.set()
            raise

    async with serving(pour, HASTY) as port, await connect(port) as stream:
        await stream.send_all(ROOT_GET)
        await gone.wait()
        with pytest.raises(trio.BrokenResourceError):
            await read_to_end(stream)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_bug_in_the_application_ends_the_server(*, is_cancelled: bool) -> None:
    """The peer sees its connection close before the error has left the server, and may cancel it then."""

    async def fail(_: HttpRequest, __: Responder) -> None:
        raise ZeroDivisionError

    with pytest.RaisesGroup(pytest.RaisesGroup(ZeroDivisionError)):
        async with serving(fail) as port:
            with contextlib.suppress(trio.BrokenResourceError):
                await talk(port, ROOT_GET)
            if not is_cancelled:
                await trio.sleep_forever()


POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
INVALID = b"invalid_request_error: The request is not valid HTTP"
TOO_LARGE = b"request_too_large: Request exceeds the maximum size"
TOO_LONG = b"invalid_request_error: Request headers exceed 500 bytes"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
HEADERS = b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 600


@pytest.mark.parametrize(
    ("sent", "status", "body"),
    [
        *((garbage, 400, INVALID) for garbage in (b"\x16\x03\x01\x02", b"HELLO\r\n\r\n", b"\r\n")),
        *((b"GET / HTTP/1.1\r\n%s\r\n" % header, 400, INVALID) for header in (b"", b": x\r\n")),
        *(
            (POST + b"Content-Length: %s\r\n\r\n" % length, 400, INVALID)
            for length in (b"-1", b"1\r\nContent-Length: 2", b"9" * 30)
        ),
        (POST + b"Transfer-Encoding: gzip\r\n\r\n", 400, INVALID),
        (POST + b"Host: again\r\n\r\n", 400, INVALID),
        (CHUNKED + b"xyz\r\n", 400, INVALID),
        (b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400, b"invalid_request_error: "),
        (CHUNKED + b"ffffff\r\n" + b"x" * 1001, 413, TOO_LARGE),
        (POST + b"Content-Length: 8000000\r\n\r\n" + b"x" * 8_000_000, 413, TOO_LARGE),
        (POST + b"Content-Length: 1001\r\nExpect: 100-continue\r\n\r\n", 413, TOO_LARGE),
        (b"HEAD / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n", 413, b""),
        (POST + b"Connection: close\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000, 200, b'{"method": "POST"'),
        (HEADERS, 431, TOO_LONG),
        (HEADERS + b"\r\n\r\n", 431, TOO_LONG),
    ],
    ids=lambda value: repr(value[:30]) if isinstance(value, bytes) else None,
)
async def test_invalid_or_too_long_request_is_refused(sent: bytes, status: int, body: bytes) -> None:
    """A body is refused by its length before it is sent, and headers also if they have no end."""
    async with serving(limits=SMALL) as port:
        answer = HttpAnswer.parse(await talk(port, sent))
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert answer.body.startswith(body)
    assert bool(answer.body) == bool(body)


async def test_headers_that_trickle_are_refused_in_time() -> None:
    async def trickle(stream: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            for byte in b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 1000:
                await stream.send_all(bytes([byte]))
                await trio.sleep(0.005)

    async with serving(limits=HASTY) as port, await connect(port) as stream, trio.open_nursery() as nursery:
        nursery.start_soon(trickle, stream)
        answer = HttpAnswer.parse(await stream.receive_some())
        nursery.cancel_scope.cancel()
    assert (answer.status, answer.body) == (408, b"timeout_error: The request's headers did not arrive in time")


async def test_a_body_or_a_request_that_does_not_come_ends_the_connection_in_time() -> None:
    async with serving(limits=HASTY) as port:
        assert await talk(port, b"") == b""
        answer = HttpAnswer.parse(await talk(port, POST + b"Content-Length: 9\r\n\r\nabc"))
    assert (answer.status, answer.body) == (408, b"timeout_error: The request's body did not arrive in time")


VALID = (
    b'POST /v1/messages?beta=true HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n{"model":""}',
    b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nb;a=1\r\nhello world\r\n0\r\n\r\n",
    b"HEAD /%20%zz HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n",
    b"GET / HTTP/1.0\r\nA: b\r\n folded\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
)

STINGY = attrs.evolve(HASTY, body=10_000, header_bytes=2_000, headers_within=0.02, body_within=0.02, idle=0.02)

WORDS = (
    *(b"\r\n", b"\r\n\r\n", b"\n", b"\x00", b"\xff", b" ", b":", b"%", b"?", b"[", b"CONNECT ", b"HEAD ", b"HTTP/9.9"),
    *(b"Content-Length: 99999999\r\n", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"ffffffff\r\n"),
    *(b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"Upgrade: x\r\n"),
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """One or two good requests with cuts, repeats and foreign words in them."""
    request = b"".join(draw(st.lists(st.sampled_from(VALID), min_size=1, max_size=2)))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(request)))
        end = draw(st.integers(start, min(len(request), start + 20)))
        new = draw(st.sampled_from(WORDS) | st.binary(max_size=4) | st.just(request[start:end] * 2))
        request = request[:start] + new + request[end:]
    return request


Visit = tuple[bytes, int, bool]
"""Bytes that one client sends, the end of their first write, and whether the client then closes its side."""


def visits(sent: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[Visit]]:
    return st.lists(st.tuples(sent, st.integers(0, 300), st.booleans()), min_size=1, max_size=25)


async def pay(port: int, visit: Visit) -> None:
    """Send, then wait for the end that must come; what came before it is an answer or nothing."""
    sent, pause, closes = visit
    async with await connect(port) as stream:
        with contextlib.suppress(trio.BrokenResourceError):
            for part in (sent[:pause], sent[pause:]):
                await stream.send_all(part)
                await trio.lowlevel.checkpoint()
            if closes:
                await stream.send_eof()
        with contextlib.suppress(trio.BrokenResourceError):
            answer = await read_to_end(stream)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 ")


@pytest.mark.slow
@examples(45)
@given(visits(st.binary(max_size=4000)) | visits(mutated()))
def test_any_bytes_and_malformed_requests_end_in_an_answer_or_a_close(party: list[Visit]) -> None:
    """All clients connect together, so that their timeouts run in parallel; `serving` limits the total time."""

    async def main() -> None:
        async with serving(limits=STINGY) as port:
            async with trio.open_nursery() as nursery:
                for visit in party:
                    nursery.start_soon(pay, port, visit)
            await assert_serves(port)

    trio.run(main)
