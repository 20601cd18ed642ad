"""Compaction on demand: requests of the user, served between the agent's own calls."""

from collections.abc import Awaitable, Callable

import attrs
import trio

from coterie.agents.layers.layer4_compaction.plan import CompactionJob
from coterie.agents.layers.layer4_compaction.step import CompactionStep
from coterie.agents.loop.agent import Agent
from coterie.agents.root_link.job_messages import CompactionDone, CompactJob, NotCompacted
from coterie.agents.root_link.message import WireMessage

Wait = Callable[[], Awaitable[None]]
"""Waits for something; cancelled, it loses nothing."""
TOO_SHORT = "it is too short: nothing would leave"
NO_SUMMARY = "there is no summary to be had, and nothing leaves without one; `coterie logs` says why"
SWITCHED_OFF = "compaction is switched off in its settings"


@attrs.define(eq=False)
class OnDemandCompaction:
    """Does what is asked for, one after another, in the task that is the agent's, and answers each."""

    _compact: CompactionStep | None
    """None where it is switched off."""
    _say: Callable[[WireMessage], None]
    """Carries the answers."""
    _asked: list[CompactJob] = attrs.field(factory=list, init=False)
    """Never more than who may ask at the same time."""
    _pause: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    """Around a wait of the agent."""

    def request(self, word: CompactJob) -> None:
        """Compact as soon as the agent neither runs a tool nor waits for the model."""
        self._asked.append(word)
        self._pause.cancel()

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
            self._say(await self.run_request(agent, self._asked.pop(0)))
        return mail is not None and mail.unacknowledged != known

    async def run_request(self, agent: Agent, word: CompactJob) -> CompactionDone | NotCompacted:
        """Do what *word* asks for. Raises as `serve` does."""
        if self._compact is None:
            return NotCompacted(call=word.call, reason=SWITCHED_OFF)
        pivot, count = word.pivot(), len(agent.conversation.messages)
        if pivot is not None and not 1 <= pivot.message <= count:
            reason = f"there is no message {pivot.message}: the conversation has {count}"
            return NotCompacted(call=word.call, reason=reason, is_for_user=True)
        if not _can_leave(CompactionJob.of(agent, self._compact.limits, "manual", pivot)):
            return NotCompacted(call=word.call, reason=TOO_SHORT)
        if objection := await self._compact.objection(agent, "manual"):
            return NotCompacted(call=word.call, reason=f"a hook objects: {objection}")
        told = await self._compact.compact(agent, "manual", pivot)
        return NotCompacted(call=word.call, reason=NO_SUMMARY) if told is None else CompactionDone.of(word.call, told)


def _can_leave(job: CompactionJob) -> bool:
    """Whether there is anything to summarise: the model has said something in the part that would leave."""
    if not job.messages:
        return False
    span = job.span()
    return any(message[0].role == "assistant" for message in job.messages[span.first : span.start])
