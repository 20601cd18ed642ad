"""Next user message of a conversation: the task, or what arrived since the last run."""

from collections.abc import Sequence
from pathlib import Path

import attrs
import trio

from coterie.agents.definitions.team_definition import team_briefing
from coterie.agents.events.agent_events import Noticed
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.layers.recall_layer import MemoryRecall
from coterie.agents.loop.agent import NOTHING, AddedBlocks, Agent
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.transcript_records import Addition, UserTextRecord
from coterie.agents.loop.loop import close_open_calls
from coterie.agents.prompts import render
from coterie.agents.runtime.mail_loop import has_work
from coterie.agents.runtime.setup.agent_files import AgentWork
from coterie.agents.runtime.setup.context_texts import context_text, index_text, read_indexes
from coterie.agents.runtime.setup.hook_setup import AgentHooks
from coterie.agents.runtime.setup.memory_setup import AgentMemory
from coterie.agents.runtime.setup.skill_setup import AgentSkills
from coterie.mailbox.errors import MailboxFailed
from coterie.memory.instructions.loader import Instructions

RECALL_TIMEOUT = 0.5
"""Seconds that a task waits for what it brings to mind; most often that takes some milliseconds."""


@attrs.frozen(kw_only=True)
class NextUserMessage:
    """How one agent is taken up."""

    work: AgentWork
    instructions: Instructions | None
    memory: AgentMemory
    skills: AgentSkills
    servers: str
    """What MCP servers say on how to use them."""
    recall: MemoryRecall | None
    mail: Messaging
    hooks: AgentHooks
    scratch: Path | None = None
    """What it shares with others; None for an agent that is alone."""
    running_children: tuple[str, ...] = ()
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
        news = (
            [render("still_at_work", names=", ".join(sorted(self.running_children)))] if self.running_children else []
        )
        if not (words or news or has_work(agent) or self._has_mail(agent)):
            agent.preface = (*agent.preface, *begun)
            return  # it has said all, and to be asked to end is nothing to answer
        # What others wrote while nobody worked comes along.
        started = [text for said in words for text in await self.skills.load_requested(agent, said)]
        waiting = self.mail.add_blocks(agent, ())
        told = [*map(text_block, news), *waiting.blocks, *map(text_block, [*started, *words])]
        if blocks := [*begun, *told, *recalled.blocks]:
            agent.append_message("user", blocks, *waiting.records, *self._records(agent, words), *recalled.records)

    async def _begin(self, agent: Agent, begun: Sequence[bytes], recalled: AddedBlocks) -> None:
        """Say the first words to *agent*, or keep what it is told before them until somebody says some."""
        texts = [await self._context(agent), *self._team_texts(agent.identity.agent), *self._plan()]
        texts += await self.skills.preload(agent)
        if self.work.is_teammate and not self.work.task:
            agent.preface = tuple(map(text_block, texts))  # it waits for its first message
            return
        words = self._first_texts()
        told = [text for said in words for text in (*await self.skills.load_requested(agent, said), said)]
        blocks = [*map(text_block, texts), *begun, *map(text_block, told), *recalled.blocks]
        agent.append_message("user", blocks, *self._records(agent, words), *recalled.records)

    def _first_texts(self) -> list[str]:
        """What a conversation begins with: before the user's words, what the definition of a lead says, if it does."""
        initial = (
            None if self.work.definition is None or self.work.parent_settings else self.work.definition.initial_prompt
        )
        return [*([initial] if initial and initial != self.work.task else []), self.work.task]

    def _records(self, agent: Agent, words: list[str]) -> list[Addition]:
        """What is recorded of *words*, and of the skills that they have started."""
        return [*([UserTextRecord(texts=words)] if words else []), *agent.workspace_changes()]

    def _has_mail(self, agent: Agent) -> bool:
        """Whether mail waits that is worth a turn; a mailbox that cannot be read is an event."""
        try:
            return self.mail.poll()
        except MailboxFailed as exc:
            agent.emit(LayerFailed(layer="mail", reason=str(exc)))
            return False

    async def _context(self, agent: Agent) -> str:
        for note in () if self.instructions is None else self.instructions.notes:
            agent.emit(Noticed(source=note.source, reason=note.reason))
        indexes = await trio.to_thread.run_sync(read_indexes, self.memory.places)
        for index in indexes:
            if index.warning is not None:
                agent.emit(Noticed(source=str(index.place.directory), reason=index.warning))
        self.skills.report_problems(agent)
        told = index_text(indexes), self.skills.listing, self.servers
        return context_text(self.work.project, agent.clock, self.instructions, *told)

    def _plan(self) -> list[str]:
        """What an agent is told that has to plan first."""
        plan = self.work.plan
        return [] if plan is None else [render("plan_required", approver=plan.description)]

    def _team_texts(self, name: str) -> list[str]:
        """What the agent *name* is told besides, if it is not alone.

        Not with the context, which sessions of one project have in common as long as it names nothing of theirs.
        """
        scratch = "" if self.scratch is None else render("scratch", directory=str(self.scratch))
        team = "" if self.work.team is None else team_briefing(self.work.team)
        return [text for text in (scratch, team, self._teammate(name)) if text]

    def _teammate(self, name: str) -> str:
        if (lead := self.work.lead) is None:
            return ""
        names = ", ".join(self.work.teammates)
        others = f"In the team besides: {names}." if names else "You can also write to others that you know of."
        return render("teammate", name=name, lead=lead, others=others)

    async def _recalled(self) -> AddedBlocks:
        """What the task brings to mind, if no model has to be asked for that: then it comes later."""
        if self.recall is None or not self.work.task:
            return NOTHING
        self.recall.begin(self.work.task)
        if self.recall.is_local:
            # A large store that nobody has looked into yet takes longer: then it comes with a later message.
            with trio.move_on_after(RECALL_TIMEOUT):
                await self.recall.wait_until_idle()
        return self.recall.take_found()
