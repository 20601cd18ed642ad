"""Setup of an agent's hooks (the user's commands run at events): loads hook files, makes the steps that run hooks."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from coterie.agents.definitions.definition import AgentDefinition
from coterie.agents.events.agent_events import Noticed
from coterie.agents.hooks.hook import ENDS, HookEvent
from coterie.agents.hooks.hook_files import definition_source, hook_sources, select_hooks
from coterie.agents.hooks.lifecycle_hooks import (
    CompactionHook,
    HookMessages,
    StopHook,
    ToolCallHooks,
    check_task_completion,
    hook_message_block,
)
from coterie.agents.hooks.registry import HookRegistry
from coterie.agents.loop.agent import Agent, Caller, call_without_hooks
from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.runtime.agent_spec import AgentSpec
from coterie.agents.runtime.setup.agent_files import AgentFiles, agent_environment
from coterie.agents.tools.team.task_tools import TaskUpdate
from coterie.agents.tools.tool import Tool
from coterie.agents.tools.worker_process import command_environment
from coterie.paths import project_root

CLAUDE_VARIABLE = "CLAUDE_PROJECT_DIR"
"""Environment variable with the project directory, under the name that hooks for another product expect."""
SUBJECT = "hooks"


@attrs.define(eq=False, kw_only=True)
class AgentHooks:
    """Hooks of one agent (commands of the user that run at events), and the pipeline steps that run them."""

    hooks: HookRegistry
    notices: tuple[Noticed, ...]
    """Notices for the user: problems in hook files, and hooks that do not run until they are approved."""
    files: AgentFiles
    spec: AgentSpec
    messages: HookMessages = attrs.field(factory=HookMessages, init=False)

    def wrap_tools(self, tools: Mapping[str, Tool]) -> dict[str, Tool]:
        """Return *tools* in which TaskUpdate runs the TaskCompleted hooks, if any, before it marks a task as done."""
        update = tools[TaskUpdate.name]
        assert isinstance(update, TaskUpdate), "the tool of that name"
        if not self.hooks.has("TaskCompleted"):
            return dict(tools)
        completing = partial(check_task_completion, self.hooks, self.files.name)
        return {**tools, TaskUpdate.name: attrs.evolve(update, check_completion=completing)}

    @property
    def has_hooks(self) -> bool:
        """True if the agent has at least one hook; else no steps for hooks are needed."""
        return bool(self.hooks.hooks)

    def caller(self, authority: Authorizer) -> Caller:
        """Return the function that runs a tool call of the agent, with hooks before and after it if it has hooks."""
        if not self.has_hooks:
            return call_without_hooks
        return ToolCallHooks(hooks=self.hooks, authority=authority, messages=self.messages)

    def stop_hook(self, is_ending: Callable[[], bool]) -> StopHook | None:
        """Return the step that runs hooks when the agent stops, not in a shutdown (*is_ending*); None without hooks."""
        if not self.has_hooks:
            return None
        end, subject, facts = end_event(self.spec), "", dict[str, Any]()
        if end == "TeammateIdle":
            facts = {"teammate_name": self.files.name, "team_name": self.files.session.id}
        elif end == "SubagentStop":
            subject, facts = self.spec.agent_type or "", {"agent_transcript_path": str(self.files.transcript.path)}
        return StopHook(event=end, hooks=self.hooks, subject=subject, facts=facts, is_ending=is_ending)

    def compaction_hook(self) -> CompactionHook | None:
        """Return the step that runs hooks before and after a compaction (summary of old turns); None without hooks."""
        if not self.has_hooks:
            return None
        on_restarted = partial(self._after_compaction, "compact") if self.spec.is_lead else None
        return CompactionHook(hooks=self.hooks, on_restarted=on_restarted)

    async def begin(self, agent: Agent) -> list[bytes]:
        """Emit `notices`. For the lead (first agent) also run the SessionStart hooks; return the texts they add."""
        for notice in self.notices:
            agent.emit(notice)
        is_new = not agent.conversation.messages
        return await self._context("startup" if is_new else "resume") if self.spec.is_lead else []

    async def end(self, reason: str) -> None:
        """Run the SessionEnd hooks with *reason*; do nothing if the agent is not the lead (first agent)."""
        if self.spec.is_lead:
            await self.hooks.fire("SessionEnd", reason, reason=reason)

    async def _context(self, source: str) -> list[bytes]:
        decision = await self.hooks.fire("SessionStart", source, source=source)
        self.messages.stop = self.messages.stop or decision.stop
        return [hook_message_block("SessionStart", text) for text in decision.contexts]

    async def _after_compaction(self, source: str, agent: Agent) -> None:
        """Run the SessionStart hooks with *source* "compact"; add their texts to the conversation or next message."""
        if not (blocks := await self._context(source)):
            return
        if agent.has_work:
            agent.append_message("user", blocks)
        else:
            agent.add_preface(blocks)


def load_agent_hooks(
    spec: AgentSpec, files: AgentFiles, definition: AgentDefinition | None, authority: Authorizer
) -> AgentHooks:
    """Load the approved hooks of hook files and *definition*; none if hooks are off. Blocks. Raises `ConfigInvalid`."""
    settings, project = spec.settings.hooks, files.session.project
    is_on = settings.enabled and not spec.is_bare
    general = hook_sources(project, settings) if is_on else []
    own = [definition_source(definition)] if is_on and definition is not None else []
    found, of_type = select_hooks(project, general), select_hooks(project, own)
    notices = [of_type.notice()]
    if spec.is_lead:  # All other agents load the same files, so only the lead reports their problems.
        problems = (notice for source in general for notice in (*source.problems, source.note))
        notices = [*problems, found.notice(), *notices]
    end = end_event(spec)
    # A definition's hook for any of the three end events runs at the end event of this agent.
    end_hooks = (attrs.evolve(hook, event=end) if hook.event in ENDS else hook for hook in of_type.hooks)
    return AgentHooks(
        hooks=HookRegistry(
            hooks=(*found.hooks, *end_hooks),
            facts=lambda: _facts(spec, files, authority),
            directory=spec.directory,
            environment=command_environment(
                {**agent_environment(files), CLAUDE_VARIABLE: str(project_root(spec.directory))}
            ),
            emit=files.log.emit,
        ),
        notices=tuple(Noticed(source=SUBJECT, reason=notice) for notice in notices if notice),
        files=files,
        spec=spec,
    )


def end_event(spec: AgentSpec) -> HookEvent:
    """Return the hook event for the end of work of a lead, teammate or subagent, such as `Stop` for the lead."""
    if spec.is_lead:
        return "Stop"
    return "TeammateIdle" if spec.is_teammate else "SubagentStop"


def _facts(spec: AgentSpec, files: AgentFiles, authority: Authorizer) -> dict[str, Any]:
    facts = {
        "session_id": files.session.id,
        "transcript_path": str(files.transcript.path),
        "cwd": str(spec.directory),
        "permission_mode": authority.permissions.mode,
    }
    if not spec.is_lead:
        facts |= {"agent_id": spec.name, "agent_type": spec.agent_type or "agent"}
    return facts
