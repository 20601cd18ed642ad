"""Background task of the layers: one request at a time, the newest of the pending ones, and a clean end."""

import pytest
import trio
import trio.testing

from coterie.agents.layers.background_task import BackgroundTask


class Handler:
    """Handler that waits for a permission before it finishes a request."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.done: list[int] = []
        self.permits = trio.Semaphore(0)
        self.task = BackgroundTask("test", self.handle)

    async def handle(self, request: int) -> None:
        """Handle one request."""
        self.begun.append(request)
        await self.permits.acquire()
        self.done.append(request)

    async def submit(self, *requests: int) -> None:
        """Submit requests, and let the task begin."""
        for request in requests:
            self.task.submit(request)
        await trio.testing.wait_all_tasks_blocked()


async def test_newest_pending_request_follows_running_one() -> None:
    handler = Handler()
    async with handler.task.open():
        await handler.submit(1)
        await handler.submit(2, 3)
        assert handler.begun == [1]
        assert not await handler.task.drain(0)
        handler.permits.release()
        handler.permits.release()
        assert await handler.task.drain(1)
    assert handler.done == [1, 3]


async def test_exclusive_block_waits_for_request_and_delays_others() -> None:
    handler = Handler()
    async with handler.task.open(), trio.open_nursery() as nursery:
        await handler.submit(1)
        nursery.start_soon(handler.task.wait_until_idle)
        handler.permits.release()
        async with handler.task.exclusive():
            assert handler.done == [1]
            await handler.submit(2)
            assert handler.begun == [1]
            assert handler.task.is_busy
        handler.permits.release()
        await handler.task.wait_until_idle()
    assert handler.done == [1, 2]


async def test_error_of_handler_leaves_block() -> None:
    async def fail(_request: int) -> None:
        raise OSError("the disk is full")

    task = BackgroundTask("test", fail)
    with pytest.RaisesGroup(OSError, flatten_subgroups=True):
        async with task.open():
            task.submit(1)
            await trio.sleep_forever()
    assert not task.is_busy
