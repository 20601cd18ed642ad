"""Layer 6: starts a dream in the background when the agent has finished and a dream is due."""

from typing import ClassVar

import attrs
import trio

from coterie.agents.layers.background_task import BackgroundTask
from coterie.agents.layers.layer6_dreaming.dream_run import FAILURES, PURPOSE, Dreamer, DreamProgress
from coterie.agents.root_link.job_messages import DreamJob
from coterie.errors import ConfigInvalid
from coterie.memory.dreaming.dream_lock import DueCheck, active_since
from coterie.memory.errors import DreamRefused


@attrs.define(eq=False)
class DreamScheduler(BackgroundTask[Dreamer]):
    """Pipeline step that runs dreams of one store in the background, one at a time; a failure becomes an event."""

    name: ClassVar[str] = "dreaming"
    _dreamer: Dreamer
    _due_check: DueCheck
    not_due: str | None = attrs.field(default=None, init=False)
    """Reason why no dream started when the agent last finished; None if one did."""
    progress: DreamProgress | None = attrs.field(default=None, init=False)
    """The running dream, or the last one."""

    async def before_end(self) -> None:
        """Wait for a running dream, up to the limit; the end then kills it, which leaves the memory as it was."""
        await self.drain(self._dreamer.settings.drain)

    def on_run_finished(self) -> None:
        """Start a dream if one is due and none is running; never blocks."""
        if not self.is_busy:
            self.submit(self._dreamer)

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

    async def handle(self, dreamer: Dreamer) -> None:
        """Run a dream if one is due."""
        try:
            self.not_due = await trio.to_thread.run_sync(self._due_check.reason_not_due)
            if self.not_due is None:
                await self._dream(dreamer)
        except DreamRefused as exc:
            self.not_due = exc.reason  # another process started a dream first
        except OSError as exc:
            dreamer.agent.report_failure(PURPOSE, exc)

    async def _dream(self, dreamer: Dreamer, *, is_dry: bool = False) -> None:
        """Run one dream; a failure becomes an event. Raises `DreamRefused`."""
        agent = dreamer.agent
        self.progress = DreamProgress(agent)
        try:
            sessions = await trio.to_thread.run_sync(self._due_check.sessions)
            active = [session.directory for session in active_since(sessions, self._due_check.last)]
            await dreamer.dream(active, is_dry=is_dry, progress=self.progress)
        except DreamRefused:
            raise
        except FAILURES as exc:
            if self.progress.state != "failed":  # otherwise the dream has emitted an event already
                agent.report_failure(PURPOSE, exc)
