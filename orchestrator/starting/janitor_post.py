"""The post of the janitor: who holds it is a child of the root, and whoever falls is replaced."""

import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from coterie.orchestrator.starting import janitor
from coterie.orchestrator.starting.child import Child
from coterie.orchestrator.starting.starter import StartFailed, failing_as_start

REPLACED_AT_MOST = 20
"""Times. Who kills that many means it, or none can live here."""
WAKING = 1.0
"""Seconds between two looks after a janitor that may have been stopped."""
ENDED_WITHIN = 2.0
"""Seconds in which a janitor that was told farewell ends."""


@attrs.define(eq=False)
class JanitorPost:
    """The janitor of a session, whichever process it is. Made by `open_janitor`."""

    _arguments: tuple[str, str]
    _environment: Mapping[str, str]
    _child: Child | None = None
    _line: int | None = None
    """Our end of its pipe. Nobody else gets it: it is closed in whatever is executed."""

    @property
    def pid(self) -> int | None:
        """The process; None while there is none."""
        return None if self._child is None else self._child.pid

    def fill(self) -> None:
        """Start a janitor. It need not be ready: what it waits for waits for it. Raises `StartFailed`."""
        with failing_as_start():
            theirs, ours = os.pipe()
            try:
                self._child = self._spawn(theirs)
            except OSError:
                os.close(ours)
                raise
            finally:
                os.close(theirs)
            self._line = ours

    def _spawn(self, line: int) -> Child:
        # In a group of its own no terminal reaches it. It stays in our terminal session, for then the kernel continues
        # it, if it is stopped, at our death. Without `site`, and by its path, it is there in no time.
        with os.fdopen(os.pidfd_open(os.getpid()), "rb", buffering=0) as ourselves:
            pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", janitor.__file__, *self._arguments],
                self._environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, line, 0),
                    (os.POSIX_SPAWN_DUP2, ourselves.fileno(), janitor.ROOT),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                ],
                setpgroup=0,
                setsigmask=janitor.DEAF_TO,
            )
        try:
            return Child.of(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)  # before it can take the end of its pipe for ours
            os.waitpid(pid, 0)
            raise

    async def keep(self, fail: Callable[[str], None]) -> None:
        """Replace who falls and continue who is stopped, until cancelled; *fail* hears of each fall.

        Returns when none can be started, or too many have fallen: the session goes on without.
        """
        for _ in range(REPLACED_AT_MOST):
            status = await self._fallen()
            fail(f"the janitor ended with status {status}, and is replaced")
            try:
                self.fill()
            except StartFailed as exc:
                fail(f"there is no janitor any more: {exc}")
                return
        fail(f"there is no janitor any more: {REPLACED_AT_MOST} were replaced, and status {await self._fallen()}")

    async def _fallen(self) -> int:
        """The status of a janitor that has ended before its time."""
        assert self._child is not None
        while self._child.status is None:
            self._child.send_signal(signal.SIGCONT)
            with trio.move_on_after(WAKING):
                await self._child.wait()
        self._hang_up()
        return self._child.status

    async def leave(self) -> None:
        """Tell the janitor that all is well; wait, kill. Returns once it is reaped; is not cancelled."""
        if self._child is None or self._line is None:
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(self._line, janitor.FAREWELL)
        self._hang_up()
        self._child.send_signal(signal.SIGCONT)
        with trio.CancelScope(shield=True):
            with trio.move_on_after(ENDED_WITHIN):
                await self._child.wait()
            self._child.send_signal(signal.SIGKILL)
            await self._child.wait()

    def _hang_up(self) -> None:
        assert self._line is not None
        os.close(self._line)
        self._line = None


@asynccontextmanager
async def open_janitor(mark: str, record: Path, environment: Mapping[str, str]) -> AsyncIterator[JanitorPost]:
    """Have a janitor while the block runs: if this process is killed in it, nothing of the session is left.

    *mark* is the `VARIABLE=SESSION` by which its processes are known, and *record* the file that says who the root is;
    it is there already. *environment* has the mark too, as the janitor is one of them. Run `JanitorPost.keep` beside
    what can fail. If janitor and root are killed in one moment, or the janitor while the root is stopped, nobody is
    left who could notice: then a resume ends what there is, and `coterie doctor` finds it. Enter it before any process
    of the session is started. Raises `StartFailed`.
    """
    post = JanitorPost((mark, str(record)), environment)
    post.fill()
    try:
        yield post
    finally:
        await post.leave()
