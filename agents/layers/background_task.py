"""Background work of a layer: one request at a time, next to the turns of its agent."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import ClassVar, Generic, TypeVar

import attrs
import trio

Request = TypeVar("Request")


@asynccontextmanager
async def run_in_background(function: Callable[[], Awaitable[None]], name: str) -> AsyncIterator[None]:
    """Run *function* as a task for the duration of the block; the end of the block cancels the task."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(function, name=name)
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()


@attrs.define(eq=False)
class BackgroundTask(ABC, Generic[Request]):
    """Base of a task that handles requests one at a time; a pending request is replaced by a newer one."""

    name: ClassVar[str]
    is_open: bool = attrs.field(default=True, init=False)
    """False after the block of `open` has ended; requests are then ignored."""
    _pending: Request | None = attrs.field(default=None, init=False)
    _is_active: bool = attrs.field(default=False, init=False)
    """True while a request or an exclusive block runs."""
    _submitted: trio.Event = attrs.field(factory=trio.Event, init=False)
    _finished: trio.Event = attrs.field(factory=trio.Event, init=False)

    @abstractmethod
    async def handle(self, request: Request) -> None:
        """Handle one request."""

    @property
    def is_busy(self) -> bool:
        """True if a request is running or pending."""
        return self._is_active or self._pending is not None

    def submit(self, request: Request) -> None:
        """Handle *request* as soon as no other one is running; never blocks."""
        if self.is_open:
            self._pending = request
            self._submitted.set()

    async def wait_until_idle(self) -> None:
        """Wait until no request is running or pending; this may take several model calls."""
        while self.is_busy:
            await self._finished.wait()

    async def drain(self, seconds: float) -> bool:
        """Wait up to *seconds* until idle; return True if the task is idle."""
        with trio.move_on_after(seconds):
            await self.wait_until_idle()
        return not self.is_busy

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Wait until idle, then handle no request until the block ends."""
        await self.wait_until_idle()
        self._is_active = True
        try:
            yield
        finally:
            self._finish()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Handle requests in the background until the block ends.

        The end of the block cancels a running request, after `before_end` unless an error ends the block.
        """
        async with run_in_background(self._run, self.name):
            yield
            await self.before_end()

    async def before_end(self) -> None:
        """Do nothing; a subclass may wait here for a running request."""

    async def _run(self) -> None:
        try:
            while True:
                await self._submitted.wait()
                self._submitted = trio.Event()
                while self._is_active:
                    await self._finished.wait()
                while self._pending is not None:
                    request, self._pending, self._is_active = self._pending, None, True
                    await self.handle(request)
                    self._finish()
        finally:
            self.is_open, self._pending = False, None
            self._finish()

    def _finish(self) -> None:
        self._is_active = False
        self._finished.set()
        self._finished = trio.Event()
