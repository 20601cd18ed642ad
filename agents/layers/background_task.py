"""Base class for background work of an agent, such as updates of notes: one request at a time."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import ClassVar, Generic, TypeVar

import attrs
import trio

Request = TypeVar("Request")


@asynccontextmanager
async def run_in_background(function: Callable[[], Awaitable[None]], name: str) -> AsyncIterator[None]:
    """Return a context manager that runs *function* in a background task; the end of its block cancels the task."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(function, name=name)
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()


@attrs.define(eq=False)
class BackgroundTask(ABC, Generic[Request]):
    """Base class of a background task that handles requests one at a time. A new request replaces a waiting one."""

    name: ClassVar[str]
    is_open: bool = attrs.field(default=True, init=False)
    """False after the block of `open` has ended; later requests are ignored."""
    _pending: Request | None = attrs.field(default=None, init=False)
    _is_active: bool = attrs.field(default=False, init=False)
    """True while a request is handled or a block of `exclusive` runs."""
    _submitted: trio.Event = attrs.field(factory=trio.Event, init=False)
    _finished: trio.Event = attrs.field(factory=trio.Event, init=False)

    @abstractmethod
    async def handle(self, request: Request) -> None:
        """Do the work for *request*. The background task calls this for one request at a time."""

    @property
    def is_busy(self) -> bool:
        """True if a request is handled or waits, or a block of `exclusive` runs."""
        return self._is_active or self._pending is not None

    def submit(self, request: Request) -> None:
        """Let the background task handle *request* after a running one; replaces a waiting one. Ignored if not open."""
        if self.is_open:
            self._pending = request
            self._submitted.set()

    async def wait_until_idle(self) -> None:
        """Wait until no request is handled or waits, and no `exclusive` block runs; may take several model calls."""
        while self.is_busy:
            await self._finished.wait()

    async def drain(self, seconds: float) -> bool:
        """Wait up to *seconds* until no request is handled or waits; return False if this limit has passed first."""
        with trio.move_on_after(seconds):
            await self.wait_until_idle()
        return not self.is_busy

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Wait until no request is handled or waits; then delay new ones until the block ends, so it runs alone."""
        await self.wait_until_idle()
        self._is_active = True
        try:
            yield
        finally:
            self._finish()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Handle requests in the background until the block ends.

        The end of the block cancels a running request. Before that, `before_end` is called, unless an error ended the
        block.
        """
        async with run_in_background(self._run, self.name):
            yield
            await self.before_end()

    async def before_end(self) -> None:
        """Do nothing. Called at the end of `open`, so that a subclass can wait for a running request."""

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
