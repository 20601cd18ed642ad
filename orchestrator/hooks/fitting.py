"""An agent is fitted with its hooks: which hold for it, what they are told of it, and where they come in."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs

from coterie.agents.agent import Agent
from coterie.agents.compaction.step import CompactContext
from coterie.agents.events import Noticed
from coterie.agents.hooks.calls import HookedCalls
from coterie.agents.hooks.compacting import AskBeforeCompaction
from coterie.agents.hooks.hook import ENDS, HookEvent
from coterie.agents.hooks.hooks import Hooks
from coterie.agents.hooks.remarks import Remarks, remark
from coterie.agents.hooks.stopping import AskAtStop
from coterie.agents.hooks.tasks import ask_before_completing
from coterie.agents.permissions import Authority
from coterie.agents.project import project_root
from coterie.agents.tools.environment import command_environment
from coterie.agents.tools.tasks.update import TaskUpdate
from coterie.agents.tools.tool import Tool
from coterie.orchestrator.hooks.approval import holding
from coterie.orchestrator.hooks.sources import hook_sources, kind_source
from coterie.orchestrator.mailroom import Mailroom
from coterie.orchestrator.making import commands_are_told
from coterie.orchestrator.seat import Seat, Work
from coterie.orchestrator.session import MAIN
from coterie.orchestrator.tree.ordering import FORK

CLAUDE_VARIABLE = "CLAUDE_PROJECT_DIR"
"""Tells a hook where the project is, by the name that hooks know."""
SUBJECT = "hooks"


@attrs.define(eq=False, kw_only=True)
class FittedHooks:
    """The hooks of one agent, at their places."""

    hooks: Hooks
    notices: tuple[Noticed, ...]
    """What the user should know of files with hooks."""
    seat: Seat
    work: Work
    remarks: Remarks = attrs.field(factory=Remarks, init=False)

    @property
    def is_lead(self) -> bool:
        """Whether it is the agent that the user talks to: its start and end are the session's."""
        return self.seat.name == MAIN

    def fit_tools(self, tools: Mapping[str, Tool]) -> dict[str, Tool]:
        """*tools*, of which one is not done with a task before hooks agree."""
        update = tools[TaskUpdate.name]
        assert isinstance(update, TaskUpdate), "the tool of that name"
        if not self.hooks.has("TaskCompleted"):
            return dict(tools)
        completing = partial(ask_before_completing, self.hooks, self.seat.name)
        return {**tools, TaskUpdate.name: attrs.evolve(update, completing=completing)}

    def fit(self, agent: Agent, authority: Authority, room: Mailroom, compact: CompactContext | None) -> None:
        """Let hooks come in wherever *agent* has any; without any, it works as it did."""
        if not self.hooks.hooks:
            return
        agent.caller = HookedCalls(hooks=self.hooks, authority=authority, remarks=self.remarks)
        stop = AskAtStop(
            event=self._end,
            hooks=self.hooks,
            subject="" if self._end != "SubagentStop" else _kind(self.work) or "",
            facts=self._end_facts(),
            is_ending=lambda: bool(room.mail.shutdown.requests),
        )
        pipeline = agent.pipeline
        agent.pipeline = attrs.evolve(
            pipeline,
            messages=(self.remarks, *pipeline.messages),
            calls=(self.remarks, *pipeline.calls),
            stops=(*pipeline.stops, stop),
        )
        if compact is not None:
            began = partial(self._begin_anew, "compact") if self.is_lead else None
            compact.hooks = AskBeforeCompaction(hooks=self.hooks, began=began)

    async def begin(self, agent: Agent) -> list[bytes]:
        """Tell what the user should know, and let hooks know that the session begins; what they say, as blocks."""
        for notice in self.notices:
            agent.tell(notice)
        is_new = not agent.conversation.messages
        return await self._context("startup" if is_new else "resume") if self.is_lead else []

    async def end(self, reason: str) -> None:
        """Let hooks know that the run of the lead has ended."""
        if self.is_lead:
            await self.hooks.fire("SessionEnd", reason, reason=reason)

    async def _context(self, source: str) -> list[bytes]:
        advice = await self.hooks.fire("SessionStart", source, source=source)
        self.remarks.stop = self.remarks.stop or advice.stop
        return [remark("SessionStart", text) for text in advice.contexts]

    async def _begin_anew(self, source: str, agent: Agent) -> None:
        """What hooks have to say to a conversation that was compacted: now, or with the next message."""
        if not (blocks := await self._context(source)):
            return
        last = agent.conversation.prefix.last
        if last is not None and last.role == "user":
            agent.say("user", blocks)
        else:
            agent.preface = (*agent.preface, *blocks)

    @property
    def _end(self) -> HookEvent:
        return end_of(self.seat, self.work)

    def _end_facts(self) -> dict[str, Any]:
        if self._end == "TeammateIdle":
            return {"teammate_name": self.seat.name, "team_name": self.seat.session.id}
        return {"agent_transcript_path": str(self.seat.transcript.path)} if self._end == "SubagentStop" else {}


def fitted_hooks(work: Work, seat: Seat, authority: Authority) -> FittedHooks:
    """The hooks of the agent of *seat*. Blocks on the disk. Raises `ConfigInvalid`."""
    settings, project = work.settings.hooks, seat.session.project
    is_on = settings.enabled and not work.is_bare
    general = hook_sources(project, settings) if is_on else []
    own = [kind_source(work.kind)] if is_on and work.kind is not None else []
    found, kinds = holding(project, general), holding(project, own)
    notices = [kinds.notice()]
    if seat.name == MAIN:  # one is enough to tell it
        told = (word for source in general for word in (*source.flaws, source.note))
        notices = [*told, found.notice(), *notices]
    end = end_of(seat, work)
    # What a kind's file calls the end of its work is whichever this agent has.
    kept = (attrs.evolve(hook, event=end) if hook.event in ENDS else hook for hook in kinds.hooks)
    return FittedHooks(
        hooks=Hooks(
            hooks=(*found.hooks, *kept),
            facts=lambda: _facts(work, seat, authority),
            directory=work.project,
            environment=command_environment(
                {**commands_are_told(seat), CLAUDE_VARIABLE: str(project_root(work.project))}
            ),
            tell=seat.log.tell,
        ),
        notices=tuple(Noticed(source=SUBJECT, reason=notice) for notice in notices if notice),
        seat=seat,
        work=work,
    )


def end_of(seat: Seat, work: Work) -> HookEvent:
    """What it is called when the agent of *seat* has nothing more to do."""
    if seat.name == MAIN:
        return "Stop"
    return "TeammateIdle" if work.stays else "SubagentStop"


def _facts(work: Work, seat: Seat, authority: Authority) -> dict[str, Any]:
    facts = {
        "session_id": seat.session.id,
        "transcript_path": str(seat.transcript.path),
        "cwd": str(work.project),
        "permission_mode": authority.permissions.mode,
    }
    if seat.name != MAIN:
        facts |= {"agent_id": seat.name, "agent_type": _kind(work) or "agent"}
    return facts


def _kind(work: Work) -> str | None:
    if work.fork is not None:
        return FORK
    return None if work.kind is None else work.kind.name
