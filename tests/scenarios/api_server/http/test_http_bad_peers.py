import contextlib

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coterie.scenarios.api_server.http.http_connection import ClientGone, HttpRequest
from coterie.scenarios.api_server.http.http_server import Responder
from tests.scenarios.api_server.http.http_peer import (
    HASTY,
    LAST_GET,
    ROOT_GET,
    SMALL,
    HttpAnswer,
    assert_serves,
    connect,
    read_one,
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


async def test_a_request_sent_ahead_during_a_wait_is_kept() -> None:
    waiting, release = trio.Event(), trio.Event()

    async def wait(request: HttpRequest, respond: Responder) -> None:
        async with respond.while_connected():
            waiting.set()
            await release.wait()
        await respond.send(200, [], request.path.encode())

    async with serving(wait) as port, await connect(port) as stream:
        await stream.send_all(ROOT_GET.replace(b"/ ", b"/first "))
        await waiting.wait()
        await stream.send_all(LAST_GET.replace(b"/ ", b"/second "))
        await wait_all_tasks_blocked()
        release.set()
        raw = await read_to_end(stream)
    assert raw.index(b"/first") < raw.index(b"/second")


async def test_a_peer_that_floods_a_wait_is_not_read_without_end() -> None:
    waiting, release = trio.Event(), trio.Event()

    async def wait(_: HttpRequest, respond: Responder) -> None:
        async with respond.while_connected():
            waiting.set()
            await release.wait()
        await respond.send(200, [], b"")

    async with serving(wait) as port, await connect(port) as stream:
        await stream.send_all(ROOT_GET)
        await waiting.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, b"x" * 30_000_000)
            await wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 1
            nursery.cancel_scope.cancel()
        release.set()
        assert HttpAnswer.parse(await stream.receive_some()).status == 200


async def test_an_error_in_a_wait_leaves_it_bare() -> None:
    async def fail(_: HttpRequest, respond: Responder) -> None:
        with pytest.raises(LookupError):
            async with respond.while_connected():
                raise LookupError
        await respond.send(200, [], b"")

    async with serving(fail) as port:
        await assert_serves(port)


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


@pytest.mark.parametrize("part", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"])
@pytest.mark.parametrize("how", ["closes", "resets"])
async def test_incomplete_request_does_not_affect_other_connections(part: bytes, how: str) -> None:
    async with serving() as port:
        stream = await connect(port)
        await stream.send_all(part)
        await wait_all_tasks_blocked()
        if how == "resets":
            reset(stream)
        await stream.aclose()
        await assert_serves(port)


async def test_a_bug_in_the_application_ends_the_server() -> None:
    async def fail(_: HttpRequest, __: Responder) -> None:
        raise ZeroDivisionError

    with pytest.RaisesGroup(pytest.RaisesGroup(ZeroDivisionError)):
        async with serving(fail) as port:
            with contextlib.suppress(trio.BrokenResourceError):
                await talk(port, ROOT_GET)
            await trio.sleep_forever()


async def test_a_bug_is_not_lost_when_the_server_is_cancelled_at_once() -> None:
    """The peer sees its connection close before the error has left the server, and cancels it then."""

    async def fail(_: HttpRequest, __: Responder) -> None:
        raise ZeroDivisionError

    with pytest.RaisesGroup(pytest.RaisesGroup(ZeroDivisionError)):
        async with serving(fail) as port:
            with contextlib.suppress(trio.BrokenResourceError):
                await talk(port, ROOT_GET)


async def test_invalid_http_is_refused() -> None:
    async with serving() as port:
        for garbage in (
            b"\x16\x03\x01\x02",
            b"HELLO\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"\r\n",
            b"GET / HTTP/1.1\r\n: x\r\n\r\n",
        ):
            answer = HttpAnswer.parse(await talk(port, garbage))
            assert answer.status == 400
            assert answer.headers["connection"] == "close"
            assert answer.body.startswith(b"invalid_request_error: The request is not valid HTTP")


POST = b"POST / HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (POST + b"Content-Length: -1\r\n\r\n", 400),
        (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: gzip\r\n\r\n", 400),
        (POST + b"Host: again\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nffffff\r\n" + b"x" * 1001, 413),
        pytest.param(POST + b"Content-Length: 8000000\r\n\r\n" + b"x" * 8_000_000, 413, id="complete long body"),
    ],
)
async def test_bad_headers_chunks_and_long_bodies_are_refused(request_bytes: bytes, status: int) -> None:
    async with serving(limits=SMALL) as port:
        assert HttpAnswer.parse(await talk(port, request_bytes)).status == status


@pytest.mark.parametrize("end", [b"", b"\r\n\r\n"])
async def test_too_many_bytes_of_headers_are_refused(end: bytes) -> None:
    """The limit holds for headers in one read and for headers without an end."""
    async with serving(limits=SMALL) as port:
        raw = await talk(port, b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 600 + end)
    answer = HttpAnswer.parse(raw)
    assert (answer.status, answer.body) == (431, b"invalid_request_error: Request headers exceed 500 bytes")


async def test_a_long_body_is_refused_by_its_length_before_it_is_sent() -> None:
    async with serving(limits=SMALL) as port, await connect(port) as stream:
        await stream.send_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n")
        answer = HttpAnswer.parse(await read_to_end(stream))
    assert (answer.status, answer.body) == (413, b"request_too_large: Request exceeds the maximum size")


async def test_a_body_of_exactly_the_limit_is_taken() -> None:
    async with serving(limits=SMALL) as port, await connect(port) as stream:
        await stream.send_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000)
        assert (await read_one(stream)).status == 200


async def test_refusing_a_head_request_sends_no_body() -> None:
    async with serving(limits=SMALL) as port:
        raw = await talk(port, b"HEAD / HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n")
    answer = HttpAnswer.parse(raw)
    assert (answer.status, answer.body) == (413, b"")


async def test_connection_without_a_request_is_closed_without_an_answer() -> None:
    async with serving(limits=HASTY) as port:
        assert await talk(port, b"") == b""


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
    assert (answer.status, answer.body) == (
        408,
        b"timeout_error: The request's headers did not arrive in time",
    )


async def test_a_body_that_does_not_come_is_refused_in_time() -> None:
    async with serving(limits=HASTY) as port:
        raw = await talk(port, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc")
    answer = HttpAnswer.parse(raw)
    assert (answer.status, answer.body) == (408, b"timeout_error: The request's body did not arrive in time")
