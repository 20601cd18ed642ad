"""An agent's conversation is made to end with something for the model to answer: its task, or what came since."""

import attrs
import trio

from coterie.agents.agent import NOTHING, Added, Agent
from coterie.agents.conversation import text_block
from coterie.agents.conversation.records import WordsRecord
from coterie.agents.events import Noticed
from coterie.agents.layers.mail import DeliverMail
from coterie.agents.layers.recall import Recall
from coterie.agents.living import has_work
from coterie.agents.loop import close_open_calls
from coterie.memory.instructions import Instructions
from coterie.orchestrator.agent_memory import AgentMemory
from coterie.orchestrator.first_context import context_text
from coterie.orchestrator.memory_texts import index_text, read_indexes
from coterie.orchestrator.seat import Work

PATIENCE = 0.5
"""Seconds that a task waits for what it brings to mind; most often that takes some milliseconds."""


@attrs.frozen(kw_only=True)
class TakeUp:
    """How one agent is taken up."""

    work: Work
    instructions: Instructions | None
    memory: AgentMemory
    recall: Recall | None
    mail: DeliverMail

    async def __call__(self, agent: Agent) -> None:
        """Say what *agent* is to do, unless that is there; calls that a crash left open are answered.

        Raises `OSError` when it cannot be recorded.
        """
        work = self.work
        if agent.fork_of is not None and work.task and has_work(agent) and not agent.conversation.open_tool_uses:
            return  # its directive, or what it was told since, is there
        close_open_calls(agent)
        recalled = await self._recalled()
        if len(agent.conversation.messages) == 0:
            blocks = [text_block(await self._context(agent)), text_block(work.task), *recalled.blocks]
            agent.say("user", blocks, WordsRecord(texts=[work.task]), *recalled.records)
            return
        # What others wrote while nobody worked comes along: of its subagents, too, that ended with it in a crash.
        waiting = self.mail.add(agent, ())
        words = [work.task] if work.task else []
        if blocks := [*waiting.blocks, *map(text_block, words), *recalled.blocks]:
            said = [WordsRecord(texts=words)] if words else []
            agent.say("user", blocks, *waiting.records, *said, *recalled.records)

    async def _context(self, agent: Agent) -> str:
        for note in () if self.instructions is None else self.instructions.notes:
            agent.tell(Noticed(source=note.source, reason=note.reason))
        indexes = await trio.to_thread.run_sync(read_indexes, self.memory.places)
        for index in indexes:
            if index.warning is not None:
                agent.tell(Noticed(source=str(index.place.directory), reason=index.warning))
        return context_text(self.work.project, agent.clock, self.instructions, index_text(indexes))

    async def _recalled(self) -> Added:
        """What the task brings to mind, if no model has to be asked for that: then it comes later."""
        if self.recall is None or not self.work.task:
            return NOTHING
        self.recall.begin(self.work.task)
        if self.recall.is_local:
            # A large store that nobody has looked into yet takes longer: then it comes with a later message.
            with trio.move_on_after(PATIENCE):
                await self.recall.settled()
        return self.recall.take()
