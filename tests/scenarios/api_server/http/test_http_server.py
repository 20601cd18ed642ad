import contextlib
import json
import re
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
    echo,
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


async def answer(request: HttpRequest, respond: Responder) -> None:
    """Answer as the path says, by default with the request."""
    if request.path == "/stream":
        await respond.start(200, [("content-type", "text/event-stream")])
        for part in (b"event: a\n\nevent: b\n\n", b"", b"event: c\n\n"):
            await respond.write(part)
        await respond.finish()
    elif request.path == "/half":
        await respond.start(200, [])
        await respond.write(b"half")
    elif request.path[1:].isdigit():
        await respond.send(int(request.path[1:]), [("request-id", "r1")], b"nothing here")
    elif request.path != "/nothing":
        await echo(request, respond)


END = "\r\n"
CHUNKS = "a\r\n0123456789\r\n1;ext=1\r\nx\r\n0\r\nTrailer: t\r\n\r\n"
PLAIN = "event: a\n\nevent: b\n\nevent: c\n\n"
CHUNKED = "14\r\nevent: a\n\nevent: b\n\n\r\na\r\nevent: c\n\n\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("line", "headers", "expected"),
    [
        *((f"{method} / HTTP/1.1", "", f'200 .*"method": "{method}"') for method in ("OPTIONS", "DELETE", "BREW")),
        *((f"GET {path} HTTP/1.1", "", f'200 .*"path": "{re.escape(path)}"') for path in ("/%", "/%zz%4", "*", "//")),
        ("GET /%ff HTTP/1.1", "", r'200 .*"path": "/\\ufffd"'),
        ("GET http://elsewhere/v1/messages HTTP/1.1", "", '200 .*"path": "/v1/messages"'),
        ("GET http://[ HTTP/1.1", "", '200 .*"path": "/"'),
        ("POST / HTTP/1.1", f"Transfer-Encoding: chunked\r\n\r\n{CHUNKS}", '200 .*"body": "0123456789x"'),
        ("GET /404 HTTP/1.1", "", "404 .*request-id: r1\r\ncontent-length: 12.*\r\n\r\nnothing here$"),
        *((f"GET /{status} HTTP/1.1", "", f"{status} .*\r\n\r\n$") for status in (204, 304)),
        ("HEAD /404 HTTP/1.1", "", "404 (?!.*nothing).*content-length: 12\r\n"),
        ("HEAD /stream HTTP/1.1", "", "200 (?!.*event: a)"),
        ("GET /stream HTTP/1.1", "", f"200 .*transfer-encoding: chunked.*\r\n\r\n{CHUNKED}$"),
        *(
            (f"GET /stream HTTP/{old}", "", "200 .*\r\n\r\nevent: a\n\nevent: b\n\nevent: c\n\n$")
            for old in ("1.0", "0.9")
        ),
        ("GET /half HTTP/1.1", "", "200 .*\r\n\r\n4\r\nhalf\r\n$"),
        ("GET /nothing HTTP/1.1", "", "^$"),
        ("GET /stream HTTP/1.1\r\nHost: x\r\n\r\nGET /404 HTTP/1.1", "", f"200 .*{CHUNKED}HTTP/1.1 404 "),
    ],
)
async def test_request_is_answered_and_the_connection_closed(line: str, headers: str, expected: str) -> None:
    async with serving(answer) as port:
        sent = f"{line}\r\nHost: x\r\nConnection: close\r\n{headers or END}"
        raw = await talk(port, sent.encode())
    assert re.search(expected, raw.decode(), re.DOTALL | re.IGNORECASE), raw


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


async def test_port_in_use_is_refused() -> None:
    async with serving() as port:
        with pytest.raises(OSError, match="in use"):
            await serve_http(Site(), port=port)


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
