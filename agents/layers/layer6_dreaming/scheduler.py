"""Layer 6 in the background of a session: a dream starts when the agent has finished and one is due."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import attrs
import trio

from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.layers.layer6_dreaming.dream_run import FAILURES, PURPOSE, Dreamer, DreamProgress
from coterie.agents.loop.agent import Agent
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.root_link.job_messages import DreamJob
from coterie.errors import ConfigInvalid
from coterie.memory.dreaming.due_check import DueCheck, SessionActivity, active_since
from coterie.memory.errors import DreamRefused
from coterie.memory.layer_settings import DreamingSettings
from coterie.memory.store.change import Author
from coterie.memory.store.memory_store import MemoryStore


@attrs.define(eq=False)
class DreamScheduler:
    """Dreams of one store beside the turns of one agent, one at a time. Made by `build`.

    Whatever goes wrong is an event.
    """

    _dreamer: Dreamer
    _gates: DueCheck
    closed: str | None = attrs.field(default=None, init=False)
    """Why no dream was begun when the agent last finished; None if one was."""
    progress: DreamProgress | None = attrs.field(default=None, init=False)
    """The dream that is under way, or was the last."""
    _is_wanted: bool = attrs.field(default=False, init=False)
    _called: trio.Event = attrs.field(factory=trio.Event, init=False)
    _settled: trio.Event = attrs.field(factory=trio.Event, init=False)

    @classmethod
    def build(
        cls,
        agent: Agent,
        store: MemoryStore,
        sessions: Callable[[], Sequence[SessionActivity]],
        settings: DreamingSettings,
        author: Callable[[], Author],
        *,
        scratch: Path | None = None,
        authority: Authorizer | None = None,
    ) -> Self:
        """Dreams of *store* by *agent*.

        *sessions* returns the sessions that count and is called in a thread; *author* identifies *agent*; what the
        rules of *authority* deny, a dream is denied too. The copy is made in *scratch*, else in the agent's directory.
        """
        dreamer = Dreamer(
            agent=agent,
            store=store,
            settings=settings,
            author=author,
            scratch=scratch or agent.workspace.scratch,
            authority=authority,
        )
        return cls(dreamer, DueCheck(store.directory, sessions, settings, agent.clock))

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Dream in the background until the block ends.

        The end of the block waits for a running dream, up to the limit, and then kills it, which leaves the memory as
        it was; an error that ends the block, or cancellation, does so immediately.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.run, name="dreaming")
            try:
                yield
                with trio.move_on_after(self._dreamer.settings.drain):
                    await self.wait_until_idle()
            finally:
                nursery.cancel_scope.cancel()

    def on_run_finished(self) -> None:
        """The agent's turn loop has ended: begin a dream if one is due and none is under way; never blocks."""
        if not self._is_wanted:
            self._is_wanted = True
            self._called.set()

    async def wait_until_idle(self) -> None:
        """Return when nothing is under way; it takes as long as the model does."""
        while self._is_wanted:
            await self._settled.wait()

    async def run_now(self, word: DreamJob) -> None:
        """Dream because the user wants it, as *word* says; what goes wrong is an event.

        Cancellation kills the dream. Raises `ConfigInvalid` while none can begin.
        """
        await self.wait_until_idle()
        if not word.is_forced and (reason := await trio.to_thread.run_sync(self._gates.reason_not_due)) is not None:
            raise ConfigInvalid("dream", reason)
        settings = attrs.evolve(self._dreamer.settings, deletions=word.deletions)
        try:
            await self._dream(attrs.evolve(self._dreamer, settings=settings), is_dry=word.is_dry)
        except DreamRefused as exc:
            raise ConfigInvalid("dream", exc.reason) from exc

    async def run(self) -> None:
        """Do what is asked for, one time after another, until cancelled."""
        while True:
            await self._called.wait()
            self._called = trio.Event()
            await self._run_if_due()
            self._is_wanted = False
            self._settled.set()
            self._settled = trio.Event()

    async def _run_if_due(self) -> None:
        try:
            self.closed = await trio.to_thread.run_sync(self._gates.reason_not_due)
            if self.closed is None:
                await self._dream(self._dreamer)
        except DreamRefused as exc:
            self.closed = exc.reason  # somebody else was quicker
        except OSError as exc:
            self._dreamer.agent.emit(LayerFailed(layer=PURPOSE, reason=str(exc)))

    async def _dream(self, dreamer: Dreamer, *, is_dry: bool = False) -> None:
        """One dream; what goes wrong is an event. Raises `DreamRefused`."""
        agent = dreamer.agent
        self.progress = DreamProgress(agent.model, agent.emit)
        try:
            sessions = await trio.to_thread.run_sync(self._sessions)
            await dreamer.dream(sessions, is_dry=is_dry, progress=self.progress)
        except DreamRefused:
            raise
        except FAILURES as exc:
            if self.progress.state != "failed":  # else it was told
                agent.emit(LayerFailed(layer=PURPOSE, reason=str(exc)))

    def _sessions(self) -> Sequence[Path]:
        """Those that a dream is about."""
        return [session.directory for session in active_since(self._gates.sessions(), self._gates.last)]
