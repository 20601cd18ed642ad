"""User message at the start of an agent's run: the task, or news such as mail that arrived since the last run."""

from collections.abc import Sequence

import attrs
import trio

from coterie.agents.definitions.team_definition import team_briefing
from coterie.agents.events.agent_events import Noticed
from coterie.agents.layers.recall_layer import MemoryRecall
from coterie.agents.loop.agent import NOTHING, AddedBlocks, Agent
from coterie.agents.loop.conversation.blocks import text_block
from coterie.agents.loop.conversation.transcript_records import Addition, UserTextRecord
from coterie.agents.loop.loop import close_open_calls
from coterie.agents.prompts import render
from coterie.agents.runtime.setup.agent_parts import AgentParts
from coterie.agents.runtime.setup.context_texts import context_text, index_text, read_indexes
from coterie.mailbox.errors import MailboxFailed

NO_TEAMMATES = "You can also write to other agents that you know of."
RECALL_TIMEOUT = 0.5
"""Maximum seconds to wait for memories that match the task; a search usually takes some milliseconds."""


@attrs.frozen(kw_only=True)
class NextUserMessage:
    """Function object that adds the next user message to the conversation of one agent at the start of a run."""

    parts: AgentParts
    recall: MemoryRecall | None

    async def __call__(self, agent: Agent) -> None:
        """Append this run's user message to *agent*'s conversation, unless that contains it already or nothing is new.

        First, start hooks run, and calls left open by a crash get results. Raises `OSError` of writing the transcript.
        """
        parts, task = self.parts, self.parts.spec.task
        start_blocks = await parts.hooks.begin(agent)
        if agent.fork_of is not None and task and agent.has_work and not agent.conversation.open_tool_uses:
            return  # The directive of the fork, or a later message, is in the conversation.
        close_open_calls(agent)
        recalled = await self._recalled()
        if len(agent.conversation.messages) == 0:
            await self._begin(agent, start_blocks, recalled)
            return
        user_texts = [task] if task else []
        children = sorted(spawned.name for spawned in parts.unreported_children)
        news = [render("still_at_work", names=", ".join(children))] if children else []
        if not (user_texts or news or agent.has_work or self._has_mail(agent)):
            agent.add_preface(start_blocks)
            return  # The agent has replied to everything, and a shutdown request needs no reply.
        # Includes the mail that arrived between the runs.
        skills = [text for each in user_texts for text in await parts.skills.load_requested(agent, each)]
        waiting = parts.mail.messaging.add_blocks(agent, ())
        own_blocks = [*map(text_block, news), *waiting.blocks, *map(text_block, [*skills, *user_texts])]
        if blocks := [*start_blocks, *own_blocks, *recalled.blocks]:
            agent.append_message("user", blocks, *waiting.records, *self._records(agent, user_texts), *recalled.records)

    async def _begin(self, agent: Agent, start_blocks: Sequence[bytes], recalled: AddedBlocks) -> None:
        """Append the first message: context and task. If a teammate has no task, keep the context until mail comes."""
        plan = self.parts.spec.plan
        texts = [await self._context(agent), *self._team_texts(agent.identity.agent)]
        texts += [] if plan is None else [render("plan_required", approver=plan.description)]
        texts += await self.parts.skills.preload(agent)
        if self.parts.spec.is_teammate and not self.parts.spec.task:
            agent.add_preface(map(text_block, texts))  # The teammate waits for its first message.
            return
        spec, definition = self.parts.spec, self.parts.definition
        # The initial prompt of a definition is for a lead.
        initial = None if definition is None or spec.parent_settings else definition.initial_prompt
        user_texts = [*([initial] if initial and initial != spec.task else []), spec.task]
        task = [text for each in user_texts for text in (*await self.parts.skills.load_requested(agent, each), each)]
        blocks = [*map(text_block, texts), *start_blocks, *map(text_block, task), *recalled.blocks]
        agent.append_message("user", blocks, *self._records(agent, user_texts), *recalled.records)

    def _records(self, agent: Agent, user_texts: list[str]) -> list[Addition]:
        """Return transcript records of *user_texts* and of new tool state, such as skills that these texts loaded."""
        return [*([UserTextRecord(texts=user_texts)] if user_texts else []), *agent.workspace_changes()]

    def _has_mail(self, agent: Agent) -> bool:
        """Return True if mail has arrived that needs a turn; return False and emit an event if it cannot be read."""
        try:
            return self.parts.mail.messaging.poll()
        except MailboxFailed as exc:
            agent.report_failure("mail", exc)
            return False

    async def _context(self, agent: Agent) -> str:
        parts = self.parts
        for note in () if parts.instructions is None else parts.instructions.notes:
            agent.emit(Noticed(source=note.source, reason=note.reason))
        indexes = await trio.to_thread.run_sync(read_indexes, parts.memory.places)
        for index in indexes:
            if index.warning is not None:
                agent.emit(Noticed(source=str(index.place.directory), reason=index.warning))
        parts.skills.report_problems(agent)
        lists = index_text(indexes), parts.skills.listing, parts.mcp_tools.to_text()
        return context_text(parts.spec.directory, agent.clock, parts.instructions, *lists)

    def _team_texts(self, name: str) -> list[str]:
        """Return texts for the first message of agent *name*: shared directory, team that it leads, its teammates.

        They are not part of the context text, so that this text is the same in all sessions of a project and stays in
        the prompt cache.
        """
        parts, teammate = self.parts, ""
        if parts.spec.is_teammate and (lead := parts.spec.parent) is not None:
            names = ", ".join(parts.teammates)
            others = f"Other members of the team: {names}." if names else NO_TEAMMATES
            teammate = render("teammate", name=name, lead=lead, others=others)
        scratch = "" if parts.scratch is None else render("scratch", directory=str(parts.scratch))
        team = "" if parts.team is None else team_briefing(parts.team)
        return [text for text in (scratch, team, teammate) if text]

    async def _recalled(self) -> AddedBlocks:
        """Return blocks with memories that match the task. If a model selects them, they come in a later message."""
        task = self.parts.spec.task
        if self.recall is None or not task:
            return NOTHING
        self.recall.begin(task)
        if self.recall.is_local:
            # Loading a large store for the first time takes longer; its memories then come with a later message.
            with trio.move_on_after(RECALL_TIMEOUT):
                await self.recall.wait_until_idle()
        return self.recall.take_found()
