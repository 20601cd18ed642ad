"""Compaction on demand: requests of the user, served between the agent's own calls."""

from collections.abc import Awaitable, Callable

import attrs
import trio

from coterie.agents.layers.layer4_compaction.compaction_step import CompactionStep
from coterie.agents.layers.layer4_compaction.plan import CompactionJob
from coterie.agents.loop.agent import Agent
from coterie.agents.root_link.job_messages import CompactionDone, CompactJob, NotCompacted

Wait = Callable[[], Awaitable[None]]
"""Waits for something; cancelled, it loses nothing."""
TOO_SHORT = "it is too short: nothing would leave"
NO_SUMMARY = "there is no summary to be had, and nothing leaves without one; `coterie logs` says why"
SWITCHED_OFF = "compaction is switched off in its settings"


@attrs.define(eq=False)
class PendingCompaction:
    """A compaction that is asked for, and not done yet."""

    job: CompactJob
    answer: CompactionDone | NotCompacted | None = None
    _is_done: trio.Event = attrs.field(factory=trio.Event, init=False)

    def resolve(self, answer: CompactionDone | NotCompacted) -> None:
        """Let those who wait go on with *answer*."""
        self.answer = answer
        self._is_done.set()

    async def wait(self) -> CompactionDone | NotCompacted:
        """Return the answer once it is there."""
        await self._is_done.wait()
        assert self.answer is not None
        return self.answer


@attrs.define(eq=False)
class OnDemandCompaction:
    """Does what is asked for, one after another, in the task that is the agent's, and answers each."""

    _compact: CompactionStep | None
    """None where it is switched off."""
    _asked: list[PendingCompaction] = attrs.field(factory=list, init=False)
    """Never more than who may ask at the same time."""
    _pause: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Around a wait of the agent."""

    async def request(self, job: CompactJob) -> CompactionDone | NotCompacted:
        """Compact as soon as the agent neither runs a tool nor waits for the model, and return the outcome.

        Cancelled, it is compacted all the same.
        """
        return await self.enqueue(job).wait()

    def enqueue(self, job: CompactJob) -> PendingCompaction:
        """Have *job* done, as `request` does, without waiting for it."""
        pending = PendingCompaction(job)
        self._asked.append(pending)
        self._pause.cancel()
        return pending

    async def before_call(self, agent: Agent) -> None:
        """As `CallStep.before_call`."""
        await self.serve(agent)

    async def serve_while(self, agent: Agent, wait: Wait) -> None:
        """Do what *wait* does, and what is asked for while it waits.

        It returns early if mail has entered the conversation: the agent has then something to do. Raises as *wait*
        does, and as `serve`.
        """
        while not await self.serve(agent):
            with trio.CancelScope() as self._pause:
                await wait()
                return

    async def serve(self, agent: Agent) -> bool:
        """Do all that is asked for; whether mail has entered the conversation with it.

        Cancelled, it leaves what it is at unanswered. Raises `OSError` when a compaction cannot be recorded.
        """
        mail = None if self._compact is None else self._compact.mail
        known = [] if mail is None else mail.unacknowledged
        while self._asked:
            pending = self._asked.pop(0)
            pending.resolve(await self.run_request(agent, pending.job))
        return mail is not None and mail.unacknowledged != known

    async def run_request(self, agent: Agent, job: CompactJob) -> CompactionDone | NotCompacted:
        """Do *job*. Raises as `serve` does."""
        if self._compact is None:
            return NotCompacted(reason=SWITCHED_OFF)
        pivot, count = job.pivot, len(agent.conversation.messages)
        if pivot is not None and not 1 <= pivot.message <= count:
            reason = f"there is no message {pivot.message}: the conversation has {count}"
            return NotCompacted(reason=reason, is_for_user=True)
        if not _can_leave(CompactionJob.of(agent, self._compact.settings, "manual", pivot)):
            return NotCompacted(reason=TOO_SHORT)
        if objection := await self._compact.objection(agent, "manual"):
            return NotCompacted(reason=f"a hook objects: {objection}")
        told = await self._compact.compact(agent, "manual", pivot)
        return NotCompacted(reason=NO_SUMMARY) if told is None else CompactionDone.of(told)


def _can_leave(job: CompactionJob) -> bool:
    """Whether there is anything to summarise: the model has said something in the part that would leave."""
    if not job.messages:
        return False
    span = job.span()
    return any(message[0].role == "assistant" for message in job.messages[span.first : span.start])
