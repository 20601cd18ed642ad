import contextlib
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
    Site,
    assert_serves,
    connect,
    reset,
    serving,
)


async def test_a_port_in_use_is_an_error_of_the_start() -> None:
    async with serving() as port:
        with pytest.raises(OSError, match="in use"):
            await serve_http(Site(), port=port)


@pytest.fixture
def descriptor_limit() -> Iterator[int]:
    """The hard limit; the soft one is put back afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_as_many_descriptors_as_allowed_are_asked_for(descriptor_limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, descriptor_limit))
    async with serving():
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (descriptor_limit, descriptor_limit)


async def test_connection_waits_when_descriptors_are_exhausted(descriptor_limit: int) -> None:
    async with serving() as port:
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
