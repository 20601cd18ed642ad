"""An agent's conversation is made to end with something for the model to answer: its task, or what came since."""

from collections.abc import Sequence
from pathlib import Path

import attrs
import trio

from coterie.agents.agent import NOTHING, Added, Agent
from coterie.agents.conversation import text_block
from coterie.agents.conversation.records import Addition, WordsRecord
from coterie.agents.events import LayerFailed, Noticed
from coterie.agents.layers.mail import DeliverMail
from coterie.agents.layers.recall import Recall
from coterie.agents.living import has_work
from coterie.agents.loop import close_open_calls
from coterie.agents.prompt import render
from coterie.mailbox.errors import MailboxFailed
from coterie.memory.instructions import Instructions
from coterie.orchestrator.agent_memory import AgentMemory
from coterie.orchestrator.agent_skills import AgentSkills
from coterie.orchestrator.first_context import context_text
from coterie.orchestrator.hooks.fitting import FittedHooks
from coterie.orchestrator.memory_texts import index_text, read_indexes
from coterie.orchestrator.seat import Work
from coterie.orchestrator.teams.introducing import introduction

PATIENCE = 0.5
"""Seconds that a task waits for what it brings to mind; most often that takes some milliseconds."""


@attrs.frozen(kw_only=True)
class TakeUp:
    """How one agent is taken up."""

    work: Work
    instructions: Instructions | None
    memory: AgentMemory
    skills: AgentSkills
    servers: str
    """What MCP servers say on how to use them."""
    recall: Recall | None
    mail: DeliverMail
    hooks: FittedHooks
    scratch: Path | None = None
    """What it shares with others; None for an agent that is alone."""
    at_work: tuple[str, ...] = ()
    """Whom it had started before a crash, and who work on."""

    async def __call__(self, agent: Agent) -> None:
        """Say what *agent* is to do, unless that is there; calls that a crash left open are answered.

        Raises `OSError` when it cannot be recorded.
        """
        work, begun = self.work, await self.hooks.begin(agent)
        if agent.fork_of is not None and work.task and has_work(agent) and not agent.conversation.open_tool_uses:
            return  # its directive, or what it was told since, is there
        close_open_calls(agent)
        recalled = await self._recalled()
        if len(agent.conversation.messages) == 0:
            await self._begin(agent, begun, recalled)
            return
        words = [work.task] if work.task else []
        news = [render("still_at_work", names=", ".join(sorted(self.at_work)))] if self.at_work else []
        if not (words or news or has_work(agent) or self._is_written_to(agent)):
            agent.preface = (*agent.preface, *begun)
            return  # it has said all, and to be asked to end is nothing to answer
        # What others wrote while nobody worked comes along.
        started = [text for said in words for text in await self.skills.asked(agent, said)]
        waiting = self.mail.add(agent, ())
        told = [*map(text_block, news), *waiting.blocks, *map(text_block, [*started, *words])]
        if blocks := [*begun, *told, *recalled.blocks]:
            agent.say("user", blocks, *waiting.records, *self._records(agent, words), *recalled.records)

    async def _begin(self, agent: Agent, begun: Sequence[bytes], recalled: Added) -> None:
        """Say the first words to *agent*, or keep what it is told before them until somebody says some."""
        texts = [await self._context(agent), *self._shared(agent.identity.agent), *self._plan()]
        texts += await self.skills.begin(agent)
        if self.work.stays and not self.work.task:
            agent.preface = tuple(map(text_block, texts))  # it waits for its first message
            return
        words = self._first_words()
        told = [text for said in words for text in (*await self.skills.asked(agent, said), said)]
        blocks = [*map(text_block, texts), *begun, *map(text_block, told), *recalled.blocks]
        agent.say("user", blocks, *self._records(agent, words), *recalled.records)

    def _first_words(self) -> list[str]:
        """What a conversation begins with: before the user's words, what the definition of a lead says, if it does."""
        initial = None if self.work.kind is None or self.work.above else self.work.kind.initial_prompt
        return [*([initial] if initial and initial != self.work.task else []), self.work.task]

    def _records(self, agent: Agent, words: list[str]) -> list[Addition]:
        """What is recorded of *words*, and of the skills that they have started."""
        return [*([WordsRecord(texts=words)] if words else []), *agent.workspace_changes()]

    def _is_written_to(self, agent: Agent) -> bool:
        """Whether mail waits that is worth a turn; a mailbox that cannot be read is an event."""
        try:
            return self.mail.look()
        except MailboxFailed as exc:
            agent.tell(LayerFailed(layer="mail", reason=str(exc)))
            return False

    async def _context(self, agent: Agent) -> str:
        for note in () if self.instructions is None else self.instructions.notes:
            agent.tell(Noticed(source=note.source, reason=note.reason))
        indexes = await trio.to_thread.run_sync(read_indexes, self.memory.places)
        for index in indexes:
            if index.warning is not None:
                agent.tell(Noticed(source=str(index.place.directory), reason=index.warning))
        self.skills.tell_problems(agent)
        told = index_text(indexes), self.skills.listing, self.servers
        return context_text(self.work.project, agent.clock, self.instructions, *told)

    def _plan(self) -> list[str]:
        """What an agent is told that has to plan first."""
        plan = self.work.plan
        return [] if plan is None else [render("plan_required", approver=plan.words)]

    def _shared(self, name: str) -> list[str]:
        """What the agent *name* is told besides, if it is not alone.

        Not with the context, which sessions of one project have in common as long as it names nothing of theirs.
        """
        scratch = "" if self.scratch is None else render("scratch", directory=str(self.scratch))
        team = "" if self.work.team is None else introduction(self.work.team)
        return [text for text in (scratch, team, self._teammate(name)) if text]

    def _teammate(self, name: str) -> str:
        if (lead := self.work.lead) is None:
            return ""
        names = ", ".join(self.work.colleagues)
        others = f"In the team besides: {names}." if names else "You can also write to others that you know of."
        return render("teammate", name=name, lead=lead, others=others)

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
