import contextlib
import errno
import functools
import json
import resource
import socket
from collections.abc import Iterator

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coterie.scenarios.api_server.http.http_connection import ClientGone, HttpLimits, HttpRequest
from coterie.scenarios.api_server.http.http_server import Responder, serve_http
from tests.descriptors import count_descriptors
from tests.scenarios.api_server.http.http_peer import (
    HASTY,
    LAST_GET,
    ROOT_GET,
    HttpAnswer,
    Site,
    assert_serves,
    connect,
    read_one,
    read_to_end,
    reset,
    serving,
    talk,
)


async def test_a_request_arrives_with_all_its_parts() -> None:
    async with serving() as port:
        raw = await talk(
            port,
            b"POST /v1/a%20b%2Fc?beta=true&empty=&name=%C3%A9 HTTP/1.1\r\nHost: x\r\nX-Key: one\r\nx-key: two\r\n"
            b"Content-Length: 3\r\nConnection: close\r\n\r\nabc",
        )
        seen = json.loads(HttpAnswer.parse(raw).body)
    assert seen["method"] == "POST"
    assert seen["path"] == "/v1/a b/c"
    assert seen["query"] == {"beta": "true", "empty": "", "name": "é"}
    assert seen["headers"]["x-key"] == "one, two"
    assert seen["body"] == "abc"


@pytest.mark.parametrize(
    ("line", "method", "path"),
    [
        *((f"{method} /", method, "/") for method in ("OPTIONS", "DELETE", "BREW")),
        *((f"GET {target}", "GET", target) for target in ("/%", "/%zz%4", "*", "//")),
        ("GET /%ff", "GET", "/\ufffd"),
        ("GET http://elsewhere/v1/messages", "GET", "/v1/messages"),
        ("GET http://[", "GET", "/"),
    ],
)
async def test_any_method_and_target_reach_the_application(line: str, method: str, path: str) -> None:
    async with serving() as port:
        raw = await talk(port, f"{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    seen = json.loads(HttpAnswer.parse(raw).body)
    assert (seen["method"], seen["path"]) == (method, path)


async def test_a_chunked_body_is_put_together() -> None:
    chunks = b"a\r\n0123456789\r\n1;ext=1\r\nx\r\n0\r\nTrailer: t\r\n\r\n"
    async with serving() as port:
        raw = await talk(
            port,
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunks,
        )
    assert json.loads(HttpAnswer.parse(raw).body)["body"] == "0123456789x"


async def test_expect_100_continue_is_answered() -> None:
    async with serving() as port, await connect(port) as stream:
        await stream.send_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert await stream.receive_some() == b"HTTP/1.1 100 \r\n\r\n"
        await stream.send_all(b"hi")
        assert json.loads((await read_one(stream)).body)["body"] == "hi"


async def test_a_connection_serves_one_request_after_another() -> None:
    """Also one that asks to upgrade, as if it had not asked."""
    async with serving() as port, await connect(port) as stream:
        for number in range(4):
            upgrade = "Connection: upgrade\r\nUpgrade: h2c\r\n" * (number % 2)
            await stream.send_all(f"GET /{number} HTTP/1.1\r\nHost: x\r\n{upgrade}\r\n".encode())
            assert json.loads((await read_one(stream)).body)["path"] == f"/{number}"


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async with serving() as port:
        raw = await talk(port, ROOT_GET.replace(b"/ ", b"/first ") + LAST_GET.replace(b"/ ", b"/second "))
    assert raw.count(b"HTTP/1.1 200") == 2
    assert raw.index(b"/first") < raw.index(b"/second")


async def test_partial_pipelined_headers_use_the_header_timeout() -> None:
    async with serving(limits=attrs.evolve(HASTY, idle=60)) as port:
        raw = await talk(port, ROOT_GET + b"GET / HT")
    assert b"HTTP/1.1 408" in raw


async def test_idle_connection_is_closed_without_an_answer() -> None:
    async with serving(limits=attrs.evolve(HASTY, headers_within=60)) as port, await connect(port) as stream:
        await stream.send_all(ROOT_GET)
        await read_one(stream)
        assert await read_to_end(stream) == b""


async def test_connections_beyond_the_limit_wait_for_a_place() -> None:
    served: list[str] = []

    async def note(request: HttpRequest, respond: Responder) -> None:
        served.append(request.path)
        await respond.send(200, [], b"")

    async with serving(note, HttpLimits(connections=2)) as port:
        first, second, third = [await connect(port) for _ in range(3)]
        for stream in (first, second, third):
            await stream.send_all(ROOT_GET)
        await wait_all_tasks_blocked()
        assert len(served) == 2
        await first.aclose()
        assert (await read_one(third)).status == 200
        await second.aclose()
        await third.aclose()


async def test_cancellation_closes_every_connection() -> None:
    async def hold(_: HttpRequest, respond: Responder) -> None:
        await respond.start(200, [])
        await trio.sleep_forever()

    async with serving(hold) as port:
        idle, held, partial = [await connect(port) for _ in range(3)]
        await held.send_all(ROOT_GET)
        await partial.send_all(b"GET")
        await held.receive_some()
        await wait_all_tasks_blocked()
    for stream in (idle, held, partial):
        async with stream:
            with contextlib.suppress(trio.BrokenResourceError), trio.fail_after(1):
                assert await stream.receive_some() == b""
    with pytest.raises(OSError, match="all attempts to connect"):
        await connect(port)


async def test_a_whole_answer_is_one_write_with_its_length() -> None:
    async def answer_404(request: HttpRequest, respond: Responder) -> None:
        assert not respond.begun
        status = int(request.path[1:])
        await respond.send(status, [("request-id", "r1")], b"nothing here")
        assert respond.begun

    async with serving(answer_404) as port, await connect(port) as stream:
        await stream.send_all(ROOT_GET.replace(b"/ ", b"/404 "))
        await wait_all_tasks_blocked()
        answer = HttpAnswer.parse(await stream.receive_some())
        assert (answer.status, answer.body) == (404, b"nothing here")
        assert answer.headers == {"request-id": "r1", "content-length": "12"}
        for status in (b"204", b"304", b"204"):  # statuses without content
            await stream.send_all(ROOT_GET.replace(b"/ ", b"/%s " % status))
            assert (await stream.receive_some()).endswith(b"\r\n\r\n")


async def test_head_gets_the_length_without_the_body() -> None:
    async def answer(request: HttpRequest, respond: Responder) -> None:
        if request.path == "/stream":
            await respond.start(200, [])
            await respond.write(b"content")
            await respond.finish()
        else:
            await respond.send(200, [], b"content")

    async with serving(answer) as port, await connect(port) as stream:
        await stream.send_all(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
        raw = await stream.receive_some()
        assert HttpAnswer.parse(raw).headers["content-length"] == "7"
        assert raw.endswith(b"\r\n\r\n")
        await stream.send_all(b"HEAD /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await read_to_end(stream)).endswith(b"\r\n\r\n")


async def stream_two(_: HttpRequest, respond: Responder) -> None:
    await respond.start(200, [("content-type", "text/event-stream")])
    await respond.write(b"event: a\n\nevent: b\n\n")
    await respond.write(b"")
    await respond.write(b"event: c\n\n")
    await respond.finish()


async def test_a_stream_is_one_chunk_for_each_write() -> None:
    async with serving(stream_two) as port:
        answer = HttpAnswer.parse(await talk(port, LAST_GET))
        assert (await talk(port, ROOT_GET + LAST_GET)).count(b"0\r\n\r\n") == 2
    assert answer.headers["transfer-encoding"] == "chunked"
    assert answer.body == b"14\r\nevent: a\n\nevent: b\n\n\r\na\r\nevent: c\n\n\r\n0\r\n\r\n"


@pytest.mark.parametrize("version", ["1.0", "0.9"])
async def test_an_old_client_gets_one_answer_that_ends_with_the_connection(version: str) -> None:
    async with serving(stream_two) as port:
        answer = HttpAnswer.parse(await talk(port, f"GET / HTTP/{version}\r\n\r\n".encode()))
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert answer.body == b"event: a\n\nevent: b\n\nevent: c\n\n"


@pytest.mark.parametrize("begin", [False, True])
async def test_an_unfinished_answer_is_cut_off(*, begin: bool) -> None:
    async def leave(_: HttpRequest, respond: Responder) -> None:
        if begin:
            await respond.start(200, [])
            await respond.write(b"half")

    async with serving(leave) as port:
        raw = await talk(port, ROOT_GET)
    assert raw.endswith(b"4\r\nhalf\r\n") if begin else raw == b""


async def test_a_write_that_was_cancelled_ends_the_answer() -> None:
    ended = trio.Event()

    async def give_up(_: HttpRequest, respond: Responder) -> None:
        await respond.start(200, [])
        with trio.move_on_after(0.02):
            await respond.write(b"x" * 50_000_000)
        with pytest.raises(ClientGone):
            await respond.write(b"more")
        ended.set()

    async with serving(give_up) as port, await connect(port) as stream:
        await stream.send_all(ROOT_GET)
        await ended.wait()
        assert b"more" not in await read_to_end(stream)


async def test_abort_resets_the_connection() -> None:
    async def drop(_: HttpRequest, respond: Responder) -> None:
        await respond.start(200, [])
        await respond.write(b"half")
        await respond.abort()
        with pytest.raises(ClientGone):
            await respond.write(b"more")

    async with serving(drop) as port:
        with pytest.raises(trio.BrokenResourceError) as caught:
            await talk(port, ROOT_GET)
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.ECONNRESET
        with pytest.raises(trio.BrokenResourceError):
            await talk(port, ROOT_GET)


async def test_a_port_in_use_and_a_host_that_is_not_loopback_are_errors_of_the_start() -> None:
    async with serving() as port:
        with pytest.raises(OSError, match="in use"):
            await serve_http(Site(), port=port)
    for host in ("0.0.0.0", "192.0.2.1", "::", "example.org", ""):  # noqa: S104 - refused
        with pytest.raises(ValueError, match="loopback only"):
            await serve_http(Site(), host=host)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2"])
async def test_every_name_of_loopback_will_do(host: str) -> None:
    async with trio.open_nursery() as nursery:
        port = await nursery.start(functools.partial(serve_http, Site(), host=host))
        async with await trio.open_tcp_stream("127.0.0.1" if host == "localhost" else host, port) as stream:
            await stream.send_all(LAST_GET)
            assert HttpAnswer.parse(await read_to_end(stream)).status == 200
        nursery.cancel_scope.cancel()


@pytest.fixture
def descriptor_limit() -> Iterator[int]:
    """The hard limit; the soft one is put back afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_connection_waits_when_descriptors_are_exhausted(descriptor_limit: int) -> None:
    """The server asks for as many descriptors as are allowed."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, descriptor_limit))
    async with serving() as port:
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (descriptor_limit, descriptor_limit)
        with socket.create_connection(("127.0.0.1", port)) as early:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, descriptor_limit))
            await wait_all_tasks_blocked(0.01)
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptor_limit, descriptor_limit))
            early.settimeout(0)
            early.send(LAST_GET)
            await trio.lowlevel.wait_readable(early)
            assert early.recv(4096).startswith(b"HTTP/1.1 200")


async def test_two_hundred_bad_connections_leave_nothing_behind() -> None:
    async with serving() as port:
        await assert_serves(port)
        descriptors, tasks = count_descriptors(), trio.lowlevel.current_statistics().tasks_living

        async def spoil(number: int) -> None:
            stream = await connect(port)
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.send_all([b"\x00garbage", b"POST / HTTP/1.1\r\n", b"", ROOT_GET][number % 4])
            if number % 3:
                await stream.aclose()
            else:
                reset(stream)

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(spoil, number)
        with trio.fail_after(2):
            while count_descriptors() > descriptors or trio.lowlevel.current_statistics().tasks_living > tasks:
                await wait_all_tasks_blocked()
        await assert_serves(port)
