"""Layer 6: starts a dream in the background when the agent has finished and a dream is due."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

import attrs
import trio

from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.layers.background_task import BackgroundTask
from coterie.agents.layers.layer6_dreaming.dream_run import FAILURES, PURPOSE, Dreamer, DreamProgress
from coterie.agents.loop.agent import Agent
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.root_link.job_messages import DreamJob
from coterie.errors import ConfigInvalid
from coterie.memory.dreaming.dream_lock import DueCheck, SessionActivity, active_since
from coterie.memory.errors import DreamRefused
from coterie.memory.layer_settings import DreamingSettings
from coterie.memory.store.change import Author
from coterie.memory.store.memory_store import MemoryStore


@attrs.define(eq=False)
class DreamScheduler:
    """Pipeline step that runs dreams of one store in the background, one at a time. Created by `build`.

    A failure becomes an event.
    """

    _dreamer: Dreamer
    _due_check: DueCheck
    not_due: str | None = attrs.field(default=None, init=False)
    """Reason why no dream started when the agent last finished; None if one did."""
    progress: DreamProgress | None = attrs.field(default=None, init=False)
    """The running dream, or the last one."""
    _task: BackgroundTask[Dreamer] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._task = BackgroundTask("dreaming", self._run_if_due)

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
        """Create the scheduler of dreams of *store* by *agent*.

        *sessions* lists the sessions to consider and is called in a thread; *author* identifies *agent*; the rules of
        *authority* also apply to a dream. The working copy is made in *scratch*, by default the agent's own.
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
        async with self._task.open():
            yield
            await self._task.drain(self._dreamer.settings.drain)

    def on_run_finished(self) -> None:
        """Start a dream if one is due and none is running; never blocks."""
        if not self._task.is_busy:
            self._task.submit(self._dreamer)

    async def wait_until_idle(self) -> None:
        """Wait until no dream is running; this may take many model calls."""
        await self._task.wait_until_idle()

    async def run_now(self, job: DreamJob) -> None:
        """Run a dream on request of the user, with the options of *job*; a failure becomes an event.

        Cancellation kills the dream. Raises `ConfigInvalid` if no dream can begin now.
        """
        await self.wait_until_idle()
        if not job.is_forced and (reason := await trio.to_thread.run_sync(self._due_check.reason_not_due)) is not None:
            raise ConfigInvalid("dream", reason)
        settings = attrs.evolve(self._dreamer.settings, deletions=job.deletions)
        try:
            await self._dream(attrs.evolve(self._dreamer, settings=settings), is_dry=job.is_dry)
        except DreamRefused as exc:
            raise ConfigInvalid("dream", exc.reason) from exc

    async def _run_if_due(self, dreamer: Dreamer) -> None:
        try:
            self.not_due = await trio.to_thread.run_sync(self._due_check.reason_not_due)
            if self.not_due is None:
                await self._dream(dreamer)
        except DreamRefused as exc:
            self.not_due = exc.reason  # another process started a dream first
        except OSError as exc:
            dreamer.agent.emit(LayerFailed(layer=PURPOSE, reason=str(exc)))

    async def _dream(self, dreamer: Dreamer, *, is_dry: bool = False) -> None:
        """Run one dream; a failure becomes an event. Raises `DreamRefused`."""
        agent = dreamer.agent
        self.progress = DreamProgress(agent.model, agent.emit)
        try:
            sessions = await trio.to_thread.run_sync(self._sessions)
            await dreamer.dream(sessions, is_dry=is_dry, progress=self.progress)
        except DreamRefused:
            raise
        except FAILURES as exc:
            if self.progress.state != "failed":  # otherwise the dream has emitted an event already
                agent.emit(LayerFailed(layer=PURPOSE, reason=str(exc)))

    def _sessions(self) -> Sequence[Path]:
        """Directories of the sessions that were active since the last dream."""
        return [session.directory for session in active_since(self._due_check.sessions(), self._due_check.last)]
