"""Background task of the layers: one request at a time, the newest of the pending ones, and a clean end."""

import attrs
import pytest
import trio
import trio.testing

from coterie.agents.layers.background_task import BackgroundTask


@attrs.define(eq=False)
class Handler(BackgroundTask[int]):
    """Task that waits for a permission before it finishes a request."""

    name = "test"
    begun: list[int] = attrs.field(factory=list)
    done: list[int] = attrs.field(factory=list)
    permits: trio.Semaphore = attrs.field(factory=lambda: trio.Semaphore(0))

    async def handle(self, request: int) -> None:
        self.begun.append(request)
        await self.permits.acquire()
        self.done.append(request)

    async def submit_all(self, *requests: int) -> None:
        """Submit requests, and let the task begin."""
        for request in requests:
            self.submit(request)
        await trio.testing.wait_all_tasks_blocked()


async def test_newest_pending_request_follows_running_one() -> None:
    handler = Handler()
    async with handler.open():
        await handler.submit_all(1)
        await handler.submit_all(2, 3)
        assert handler.begun == [1]
        assert not await handler.drain(0)
        handler.permits.release()
        handler.permits.release()
        assert await handler.drain(1)
    assert handler.done == [1, 3]


async def test_exclusive_block_waits_for_request_and_delays_others() -> None:
    handler = Handler()
    async with handler.open(), trio.open_nursery() as nursery:
        await handler.submit_all(1)
        nursery.start_soon(handler.wait_until_idle)
        handler.permits.release()
        async with handler.exclusive():
            assert handler.done == [1]
            await handler.submit_all(2)
            assert handler.begun == [1]
            assert handler.is_busy
        handler.permits.release()
        await handler.wait_until_idle()
    assert handler.done == [1, 2]


async def test_error_of_handler_leaves_block() -> None:
    class Failing(Handler):
        async def handle(self, request: int) -> None:
            raise OSError(f"the disk is full at {request}")

    task = Failing()
    with pytest.RaisesGroup(OSError, flatten_subgroups=True):
        async with task.open():
            task.submit(1)
            await trio.sleep_forever()
    assert not task.is_busy
