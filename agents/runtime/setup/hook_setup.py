"""Setup of the hooks of an agent: which apply, the facts they get, and the points where they run."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from coterie.agents.events.agent_events import Noticed
from coterie.agents.hooks.hook import ENDS, HookEvent
from coterie.agents.hooks.hook_files import definition_source, hook_sources, select_hooks
from coterie.agents.hooks.lifecycle_hooks import (
    CompactionHook,
    HookMessages,
    StopHook,
    check_task_completion,
    hook_message_block,
)
from coterie.agents.hooks.registry import HookRegistry
from coterie.agents.hooks.tool_call_hooks import ToolCallHooks
from coterie.agents.loop.agent import Agent, Caller, call_without_hooks
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.root_link.spawn_request import FORK_TYPE
from coterie.agents.runtime.setup.agent_files import AgentFiles, AgentWork, agent_environment
from coterie.agents.tools.team.task_tools import TaskUpdate
from coterie.agents.tools.tool import Tool
from coterie.agents.tools.worker_process import command_environment
from coterie.paths import project_root
from coterie.session_directory import MAIN

CLAUDE_VARIABLE = "CLAUDE_PROJECT_DIR"
"""Tells a hook where the project is, by the name that hooks know."""
SUBJECT = "hooks"


@attrs.define(eq=False, kw_only=True)
class AgentHooks:
    """The hooks of one agent, and the steps that run them."""

    hooks: HookRegistry
    notices: tuple[Noticed, ...]
    """What the user should know of files with hooks."""
    files: AgentFiles
    work: AgentWork
    messages: HookMessages = attrs.field(factory=HookMessages, init=False)

    @property
    def is_lead(self) -> bool:
        """Whether it is the agent that the user talks to: its start and end are the session's."""
        return self.files.name == MAIN

    def wrap_tools(self, tools: Mapping[str, Tool]) -> dict[str, Tool]:
        """*tools*, of which one is not done with a task before hooks agree."""
        update = tools[TaskUpdate.name]
        assert isinstance(update, TaskUpdate), "the tool of that name"
        if not self.hooks.has("TaskCompleted"):
            return dict(tools)
        completing = partial(check_task_completion, self.hooks, self.files.name)
        return {**tools, TaskUpdate.name: attrs.evolve(update, check_completion=completing)}

    @property
    def has_hooks(self) -> bool:
        """True if any hook applies to the agent; without one no step runs."""
        return bool(self.hooks.hooks)

    def caller(self, authority: Authorizer) -> Caller:
        """Runs tool calls with the hooks around them."""
        if not self.has_hooks:
            return call_without_hooks
        return ToolCallHooks(hooks=self.hooks, authority=authority, remarks=self.messages)

    def stop_hook(self, is_ending: Callable[[], bool]) -> StopHook | None:
        """The step that asks hooks before the agent stops, unless *is_ending* says that it was asked to end."""
        if not self.has_hooks:
            return None
        subject = "" if self._end != "SubagentStop" else _agent_type(self.work) or ""
        return StopHook(
            event=self._end, hooks=self.hooks, subject=subject, facts=self._end_facts(), is_ending=is_ending
        )

    def compaction_hook(self) -> CompactionHook | None:
        """The step that runs hooks before and after a compaction."""
        if not self.has_hooks:
            return None
        began = partial(self._after_compaction, "compact") if self.is_lead else None
        return CompactionHook(hooks=self.hooks, began=began)

    async def begin(self, agent: Agent) -> list[bytes]:
        """Tell what the user should know, and let hooks know that the session begins; what they say, as blocks."""
        for notice in self.notices:
            agent.emit(notice)
        is_new = not agent.conversation.messages
        return await self._context("startup" if is_new else "resume") if self.is_lead else []

    async def end(self, reason: str) -> None:
        """Let hooks know that the run of the lead has ended."""
        if self.is_lead:
            await self.hooks.fire("SessionEnd", reason, reason=reason)

    async def _context(self, source: str) -> list[bytes]:
        advice = await self.hooks.fire("SessionStart", source, source=source)
        self.messages.stop = self.messages.stop or advice.stop
        return [hook_message_block("SessionStart", text) for text in advice.contexts]

    async def _after_compaction(self, source: str, agent: Agent) -> None:
        """What hooks have to say to a conversation that was compacted: now, or with the next message."""
        if not (blocks := await self._context(source)):
            return
        last = agent.conversation.prefix.last
        if last is not None and last.role == "user":
            agent.append_message("user", blocks)
        else:
            agent.preface = (*agent.preface, *blocks)

    @property
    def _end(self) -> HookEvent:
        return end_event(self.files, self.work)

    def _end_facts(self) -> dict[str, Any]:
        if self._end == "TeammateIdle":
            return {"teammate_name": self.files.name, "team_name": self.files.session.id}
        return {"agent_transcript_path": str(self.files.transcript.path)} if self._end == "SubagentStop" else {}


def load_agent_hooks(work: AgentWork, seat: AgentFiles, authority: Authorizer) -> AgentHooks:
    """The hooks of the agent of *seat*. Blocks on the disk. Raises `ConfigInvalid`."""
    settings, project = work.settings.hooks, seat.session.project
    is_on = settings.enabled and not work.is_bare
    general = hook_sources(project, settings) if is_on else []
    own = [definition_source(work.definition)] if is_on and work.definition is not None else []
    found, kinds = select_hooks(project, general), select_hooks(project, own)
    notices = [kinds.notice()]
    if seat.name == MAIN:  # one is enough to tell it
        told = (word for source in general for word in (*source.flaws, source.note))
        notices = [*told, found.notice(), *notices]
    end = end_event(seat, work)
    # What a kind's file calls the end of its work is whichever this agent has.
    kept = (attrs.evolve(hook, event=end) if hook.event in ENDS else hook for hook in kinds.hooks)
    return AgentHooks(
        hooks=HookRegistry(
            hooks=(*found.hooks, *kept),
            facts=lambda: _facts(work, seat, authority),
            directory=work.project,
            environment=command_environment(
                {**agent_environment(seat), CLAUDE_VARIABLE: str(project_root(work.project))}
            ),
            emit=seat.log.emit,
        ),
        notices=tuple(Noticed(source=SUBJECT, reason=notice) for notice in notices if notice),
        files=seat,
        work=work,
    )


def end_event(seat: AgentFiles, work: AgentWork) -> HookEvent:
    """What it is called when the agent of *seat* has nothing more to do."""
    if seat.name == MAIN:
        return "Stop"
    return "TeammateIdle" if work.is_teammate else "SubagentStop"


def _facts(work: AgentWork, seat: AgentFiles, authority: Authorizer) -> dict[str, Any]:
    facts = {
        "session_id": seat.session.id,
        "transcript_path": str(seat.transcript.path),
        "cwd": str(work.project),
        "permission_mode": authority.permissions.mode,
    }
    if seat.name != MAIN:
        facts |= {"agent_id": seat.name, "agent_type": _agent_type(work) or "agent"}
    return facts


def _agent_type(work: AgentWork) -> str | None:
    if work.fork is not None:
        return FORK_TYPE
    return None if work.definition is None else work.definition.name
