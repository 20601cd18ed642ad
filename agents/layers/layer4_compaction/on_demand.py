"""Compaction (summary instead of older messages) on request of the user, between two model calls of the agent."""

from collections.abc import Awaitable, Callable

import attrs
import trio

from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.layers.layer4_compaction.plan import CompactionJob
from coterie.agents.loop.agent import Agent
from coterie.agents.root_link.job_messages import CompactionDone, CompactJob, NotCompacted

TOO_SHORT = "there is nothing to summarise: the part to compact has no reply of the agent; retry after more turns"
NO_SUMMARY = "no summary of the conversation could be created, so nothing was removed; `coterie logs` shows the reason"
SWITCHED_OFF = "compaction is switched off in the settings; set layers.compaction.enabled = true"


@attrs.define(eq=False)
class PendingCompaction:
    """Request of the user for a compaction, and the answer to it once the compaction was done or refused."""

    job: CompactJob
    answer: CompactionDone | NotCompacted | None = None
    _is_done: trio.Event = attrs.field(factory=trio.Event, init=False)

    def resolve(self, answer: CompactionDone | NotCompacted) -> None:
        """Store *answer*, the outcome of the requested compaction, and wake all tasks that are in `wait`."""
        self.answer = answer
        self._is_done.set()

    async def wait(self) -> CompactionDone | NotCompacted:
        """Wait until the requested compaction was done or refused, and return the answer passed to `resolve`."""
        await self._is_done.wait()
        assert self.answer is not None
        return self.answer


@attrs.define(eq=False)
class OnDemandCompaction:
    """Pipeline step that runs compactions requested by the user, one after another, in the task that runs the agent."""

    _compact: CompactionStep | None
    """Step that carries out the compactions; None if compaction is switched off."""
    _requests: list[PendingCompaction] = attrs.field(factory=list, init=False)
    """Requests whose compaction has not started, oldest first; their number is limited by the number of clients."""
    _pause: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Cancel scope of the wait in `serve_while`; a new request cancels it, so that the agent serves the request."""

    async def request(self, job: CompactJob) -> CompactionDone | NotCompacted:
        """Request the compaction *job*, wait until the agent does it between two model calls, and return the outcome.

        Cancellation stops only the wait; the compaction takes place anyway.
        """
        return await self.enqueue(job).wait()

    def enqueue(self, job: CompactJob) -> PendingCompaction:
        """Queue the compaction *job*, wake a waiting agent, and return an object that will receive the answer."""
        pending = PendingCompaction(job)
        self._requests.append(pending)
        self._pause.cancel()
        return pending

    async def before_call(self, agent: Agent) -> None:
        """Run the requested compactions before the next model call of *agent*."""
        await self.serve(agent)

    async def serve_while(self, agent: Agent, wait: Callable[[], Awaitable[None]]) -> None:
        """Run *wait* (an idle agent's wait for mail); a request cancels *wait*, is served, and *wait* begins again.

        Returns when *wait* has ended, or early if a compaction added mail to the conversation, because the agent then
        has work. Raises `OSError` if the transcript cannot be written, and the exceptions of *wait*.
        """
        while not await self.serve(agent):
            with trio.CancelScope() as self._pause:
                await wait()
                return

    async def serve(self, agent: Agent) -> bool:
        """Run all requested compactions and answer the requests; return True if a compaction also added received mail.

        Cancellation leaves the current request without an answer. Raises `OSError` if the transcript cannot be written.
        """
        mail = None if self._compact is None else self._compact.mail
        known = [] if mail is None else mail.unacknowledged
        while self._requests:
            pending = self._requests.pop(0)
            pending.resolve(await self.run_request(agent, pending.job))
        return mail is not None and mail.unacknowledged != known

    async def run_request(self, agent: Agent, job: CompactJob) -> CompactionDone | NotCompacted:
        """Run the compaction *job* now; return its outcome, or a reason if nothing changed. Raises `OSError`."""
        if self._compact is None:
            return NotCompacted(reason=SWITCHED_OFF)
        pivot, count = job.pivot, len(agent.conversation.messages)
        if pivot is not None and not 1 <= pivot.message <= count:
            reason = f"message {pivot.message} does not exist in the conversation; give a number from 1 to {count}"
            return NotCompacted(reason=reason, is_for_user=True)
        whole = CompactionJob.of(agent, self._compact.settings, "manual", pivot)
        span = whole.span() if whole.messages else None
        if span is None or all(message[0].role != "assistant" for message in whole.messages[span.first : span.start]):
            return NotCompacted(reason=TOO_SHORT)
        if objection := await self._compact.objection(agent, "manual"):
            return NotCompacted(reason=f"a PreCompact hook objects to compaction: {objection} (change it or retry)")
        event = await self._compact.compact(agent, "manual", pivot)
        return NotCompacted(reason=NO_SUMMARY) if event is None else CompactionDone.of(event)
