"""Layer 6: starts a dream (consolidation of memories by a helper) in the background after a run, if one is due."""

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
    """Pipeline step that runs dreams (consolidation of one memory store) in the background; a failure is an event."""

    name: ClassVar[str] = "dreaming"
    _dreamer: Dreamer
    _due_check: DueCheck
    not_due: str | None = attrs.field(default=None, init=False)
    """Reason why no dream was due after the agent's last run, or did not start; None if one did, or before a check."""
    progress: DreamProgress | None = attrs.field(default=None, init=False)
    """State, cost and last turns of the running dream, or of the last one; None before the first dream."""

    async def before_end(self) -> None:
        """Wait up to `drain` seconds for a running dream; after that it is cancelled, and changes no memory."""
        await self.drain(self._dreamer.settings.drain)

    def on_run_finished(self) -> None:
        """After a run of the agent, let the background task start a dream (memory consolidation) if one is due."""
        if not self.is_busy:
            self.submit(self._dreamer)

    async def run_now(self, job: DreamJob) -> None:
        """Run a dream on request of the user, with the options of *job*, and wait for its end; a failure is an event.

        Cancellation ends the dream. Raises `ConfigInvalid` if another dream runs, or none is due and *job* forces none.
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
        """Run a dream if one is due, otherwise store the reason in `not_due`; a failure becomes an event."""
        try:
            self.not_due = await trio.to_thread.run_sync(self._due_check.reason_not_due)
            if self.not_due is None:
                await self._dream(dreamer)
        except DreamRefused as exc:
            self.not_due = exc.reason  # another process started a dream first
        except OSError as exc:
            dreamer.agent.report_failure(PURPOSE, exc)

    async def _dream(self, dreamer: Dreamer, *, is_dry: bool = False) -> None:
        """Run one dream over the sessions active since the last dream; a failure is an event. Raises `DreamRefused`."""
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
