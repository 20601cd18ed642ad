import contextlib
import functools
import resource
import socket
from collections.abc import Iterator

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from coterie.scenarios.api_server.http.http_server import serve_http
from tests.descriptors import count_descriptors
from tests.scenarios.api_server.http.http_peer import (
    LAST_GET,
    ROOT_GET,
    HttpAnswer,
    Site,
    assert_serves,
    connect,
    read_to_end,
    reset,
    serving,
)


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
