"""Compaction on request of the user, served between the agent's own model calls."""

from collections.abc import Awaitable, Callable

import attrs
import trio

from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.layers.layer4_compaction.plan import CompactionJob
from coterie.agents.loop.agent import Agent
from coterie.agents.root_link.job_messages import CompactionDone, CompactJob, NotCompacted

TOO_SHORT = "the conversation is too short to compact"
NO_SUMMARY = "no summary could be created, so nothing was removed; `coterie logs` shows the reason"
SWITCHED_OFF = "compaction is switched off in the agent's settings"


@attrs.define(eq=False)
class PendingCompaction:
    """A requested compaction and, once it is done, its answer."""

    job: CompactJob
    answer: CompactionDone | NotCompacted | None = None
    _is_done: trio.Event = attrs.field(factory=trio.Event, init=False)

    def resolve(self, answer: CompactionDone | NotCompacted) -> None:
        """Pass *answer* to all tasks that wait for it."""
        self.answer = answer
        self._is_done.set()

    async def wait(self) -> CompactionDone | NotCompacted:
        """Wait for the answer and return it."""
        await self._is_done.wait()
        assert self.answer is not None
        return self.answer


@attrs.define(eq=False)
class OnDemandCompaction:
    """Pipeline step that runs requested compactions in the agent's own task, one after another."""

    _compact: CompactionStep | None
    """None if compaction is switched off."""
    _requests: list[PendingCompaction] = attrs.field(factory=list, init=False)
    """Pending requests; the number of clients limits their number."""
    _pause: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Cancel scope of the agent's current wait."""

    async def request(self, job: CompactJob) -> CompactionDone | NotCompacted:
        """Compact as soon as the agent neither runs a tool nor waits for the model, and return the outcome.

        Cancellation stops only the wait; the compaction takes place anyway.
        """
        return await self.enqueue(job).wait()

    def enqueue(self, job: CompactJob) -> PendingCompaction:
        """Request *job* as `request` does, without waiting for the outcome."""
        pending = PendingCompaction(job)
        self._requests.append(pending)
        self._pause.cancel()
        return pending

    async def before_call(self, agent: Agent) -> None:
        """Serve pending requests."""
        await self.serve(agent)

    async def serve_while(self, agent: Agent, wait: Callable[[], Awaitable[None]]) -> None:
        """Run *wait*, and serve requests that arrive during it; *wait* is cancelled and repeated for them.

        Returns early if mail entered the conversation, because the agent then has work. Raises as *wait* and `serve`
        do.
        """
        while not await self.serve(agent):
            with trio.CancelScope() as self._pause:
                await wait()
                return

    async def serve(self, agent: Agent) -> bool:
        """Serve all pending requests; return True if mail entered the conversation with a compaction.

        Cancellation leaves the current request unanswered. Raises `OSError` if a compaction cannot be recorded.
        """
        mail = None if self._compact is None else self._compact.mail
        known = [] if mail is None else mail.unacknowledged
        while self._requests:
            pending = self._requests.pop(0)
            pending.resolve(await self.run_request(agent, pending.job))
        return mail is not None and mail.unacknowledged != known

    async def run_request(self, agent: Agent, job: CompactJob) -> CompactionDone | NotCompacted:
        """Run one compaction. Raises as `serve` does."""
        if self._compact is None:
            return NotCompacted(reason=SWITCHED_OFF)
        pivot, count = job.pivot, len(agent.conversation.messages)
        if pivot is not None and not 1 <= pivot.message <= count:
            reason = f"message {pivot.message} does not exist: the conversation has {count} messages"
            return NotCompacted(reason=reason, is_for_user=True)
        whole = CompactionJob.of(agent, self._compact.settings, "manual", pivot)
        span = whole.span() if whole.messages else None
        if span is None or all(message[0].role != "assistant" for message in whole.messages[span.first : span.start]):
            return NotCompacted(reason=TOO_SHORT)
        if objection := await self._compact.objection(agent, "manual"):
            return NotCompacted(reason=f"a hook objects: {objection}")
        event = await self._compact.compact(agent, "manual", pivot)
        return NotCompacted(reason=NO_SUMMARY) if event is None else CompactionDone.of(event)
