"""Runner of a built agent: one task, a teammate's mail loop, or a job, with the events of the run.

Importing this module imports the SDK.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TypeVar

import attrs
import msgspec
import trio

from coterie.agents.errors import ModelUnreachable, ReplyMalformed
from coterie.agents.events.agent_events import Finished, PermissionDecided, RunStarted
from coterie.agents.events.layer_events import LayerFailed
from coterie.agents.layers.layer4_compaction.on_demand import OnDemandCompaction
from coterie.agents.layers.layer4_compaction.strategies import LAYER
from coterie.agents.layers.prompt_cache.keepalive import CacheKeepalive
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.loop import close_open_calls, run_loop
from coterie.agents.loop.pipeline import Steps
from coterie.agents.loop.run_result import RunEnded, RunLimits
from coterie.agents.permissions.authorizer import PermissionDecision
from coterie.agents.root_link.job_messages import CompactJob, DreamJob, ExtractJob, NotCompacted, OfflineJob
from coterie.agents.root_link.root_connection import RootConnection
from coterie.agents.runtime.first_message import NextUserMessage
from coterie.agents.runtime.mail_loop import has_work, run_mail_loop, wait_for_mail_or_idle_team
from coterie.agents.runtime.setup.agent_files import AgentFiles, AgentWork
from coterie.agents.runtime.setup.agent_mail import AgentMail
from coterie.agents.runtime.setup.hook_setup import AgentHooks
from coterie.agents.runtime.team_membership import TeamMembership
from coterie.agents.tools.team.agent_tool import AgentTool
from coterie.errors import ConfigInvalid
from coterie.mailbox.contract import MemberState


def run_started_event(work: AgentWork, seat: AgentFiles, agent: Agent) -> RunStarted:
    """A run of *agent* begins."""
    return RunStarted(
        session=seat.session.id,
        incarnation=seat.incarnation,
        model=work.model.id,
        permission_mode=work.settings.permissions.mode,
        project=str(work.project),
        tools=list(agent.tools),
        definition=None if work.definition is None else work.definition.name,
        sandbox=None if agent.workspace.sandbox is None else agent.workspace.sandbox.way,
        color=None if work.definition is None else work.definition.color,
    )


def permission_decided_event(decision: PermissionDecision) -> PermissionDecided:
    """A call was not simply allowed."""
    return PermissionDecided(tool=decision.tool, verdict=decision.verdict, by=decision.by, reason=decision.reason)


def run_finished_event(ended: RunEnded) -> Finished:
    """A run has ended."""
    return Finished(
        reason=ended.reason,
        result=ended.text,
        turns=ended.turns,
        usage=attrs.asdict(ended.usage),
        cost_usd=format(ended.cost, "f"),
        error=None if ended.error is None else str(ended.error),
        is_unreachable=isinstance(ended.error, ModelUnreachable),
    )


ReportEnd = Callable[[RunEnded], Awaitable[None]]
"""Stores what came of a run for whoever wants to know."""


@attrs.frozen(kw_only=True)
class AgentRunner:
    """An agent that is ready to begin; nothing has been asked or told yet."""

    work: AgentWork
    seat: AgentFiles
    agent: Agent
    mail: AgentMail
    _starting: AgentTool
    _root: RootConnection
    _next_user_message: NextUserMessage
    _steps: Steps
    _hooks: AgentHooks

    @property
    def _on_demand(self) -> OnDemandCompaction:
        assert self._steps.on_demand_compaction is not None, "every agent has it"
        return self._steps.on_demand_compaction

    @property
    def _keepalive(self) -> CacheKeepalive:
        assert self._steps.keepalive is not None, "every agent has it"
        return self._steps.keepalive

    async def run(self, report: ReportEnd) -> None:
        """Let the agent work until its run has ended, and *report* it before the event of the end is told.

        While agents work for it in the background it waits for what they report, and goes on. Cancellation stops at
        once, and what was recorded stays; the event of the end says so. Raises `ReplyMalformed`, `OSError`, and what
        *report* raises.
        """
        await self._run_and_report(self._run, report)

    async def run_teammate(self, report: ReportEnd, *, lead: str | None) -> None:
        """Let the agent work, and then on whatever comes by mail, until it is asked to end; as `run_mail_loop`.

        The *lead* is told each time it is idle. Otherwise as `run`.
        """
        membership = TeamMembership(router=self.mail.router, sender=self.mail.sender, lead=lead)
        agent, mail, meanwhile = self.agent, self.mail.messaging, self._on_demand.serve_while
        await self._run_and_report(
            lambda limits: run_mail_loop(agent, mail, limits, membership, self._report_state, self._waiting, meanwhile),
            report,
        )

    async def run_job(self, chore: OfflineJob) -> None:
        """Do *chore* instead of a task, without a turn. Calls that a crash left open are answered first.

        `Agent.interrupt` leaves all as it was, or done. What cannot be had is an event. Raises `ConfigInvalid` for what
        cannot be meant, and `OSError`.
        """
        close_open_calls(self.agent)
        if self.agent.conversation.messages:
            await self._run_job(chore)
            return
        # A session that was made for it has no other run by which one could tell that it has ended.
        end = RunEnded(reason="cancelled")
        self.agent.emit(run_started_event(self.work, self.seat, self.agent))
        try:
            await self._run_job(chore)
            if not self.agent.scope.cancelled_caught:
                end = RunEnded(reason="completed")
        finally:
            self.agent.emit(run_finished_event(end))

    async def _run_job(self, chore: OfflineJob) -> None:
        with self.agent.scope:
            match chore:
                case CompactJob():
                    await self._compact(chore)
                case ExtractJob():
                    await _required(self._steps.extraction).run_now()
                case DreamJob():
                    await _required(self._steps.dreaming).run_now(chore)

    async def _compact(self, word: CompactJob) -> None:
        answer = await self._on_demand.run_request(self.agent, word)
        if isinstance(answer, NotCompacted) and answer.is_for_user:
            raise ConfigInvalid("message", answer.reason)
        if isinstance(answer, NotCompacted):
            self.agent.emit(LayerFailed(layer=LAYER, reason=answer.reason))

    async def _run_and_report(self, run: Callable[[RunLimits], Awaitable[RunEnded]], report: ReportEnd) -> None:
        end, given = run_finished_event(RunEnded(reason="cancelled")), self.work.settings
        limits = RunLimits(turns=given.max_turns, tokens=given.max_tokens_total, seconds=given.max_seconds)
        self.agent.emit(run_started_event(self.work, self.seat, self.agent))
        try:
            await self._next_user_message(self.agent)
            # Who interrupts it before its loop has begun means this run all the same.
            is_interrupted = self.agent.scope.cancel_called
            ended = RunEnded(reason="cancelled") if is_interrupted else await run(limits)
            if ended.reason == "completed":
                await self._on_demand.serve(self.agent)
            await self._hooks.end(ended.reason)
            # Whoever sees that it has finished can count on its report.
            await report(ended)
            end = run_finished_event(ended)
        except (ReplyMalformed, OSError) as exc:
            end = msgspec.structs.replace(end, reason="failed", error=_failure(exc))
            raise
        finally:
            self.agent.emit(end)

    async def _run(self, limits: RunLimits) -> RunEnded:
        if has_work(self.agent):
            ended = await self._run_loop(limits)
        else:
            # Woken by what was no message for it, or ended by a crash when all was said.
            ended = RunEnded(reason="completed", text=_final_text(self.agent))
        while ended.reason == "completed":
            with trio.CancelScope() as self.agent.scope:
                is_woken = await self._has_new_work()
            if self.agent.scope.cancel_called:
                # Who interrupts it while it waits for others means the run all the same.
                return attrs.evolve(ended, reason="cancelled")
            if not is_woken:
                return ended
            ended += await self._run_loop(limits.without(ended))
        return ended

    async def _run_loop(self, limits: RunLimits) -> RunEnded:
        ended = await run_loop(self.agent, limits)
        for step in self.agent.pipeline.end if ended.reason == "completed" else ():
            step.on_run_finished()
        return ended

    def _report_state(self, state: MemberState) -> None:
        if state != "ended":
            self._root.report_activity(state)

    def _unreported_children(self) -> int:
        """How many agents work for this one in the background."""
        return len(self._starting.pending - self.mail.messaging.reports)

    def _waiting(self) -> AbstractAsyncContextManager[None]:
        """A wait for mail: while others work for the agent, it will go on with what it has."""
        return self._keepalive.waiting() if self._unreported_children() or self._is_lead else nullcontext()

    @property
    def _is_lead(self) -> bool:
        """Whether somebody may be at work for it though no report is due: one who stays, or was written to again."""
        starting = self._starting
        return self.work.is_lead or starting.has_teammate or (starting.has_started and self.mail.router.has_sent)

    async def _has_new_work(self) -> bool:
        """Wait for mail while somebody is there who may send some; whether there is something to do then."""
        unheard, mail = self._unreported_children(), self.mail.messaging
        if not (unheard or self._is_lead):
            return False
        self._root.report_activity("waiting", f"{unheard} agent{'s' if unheard > 1 else ''}" if unheard else "the team")
        await self._on_demand.serve_while(self.agent, self._wait_for_mail)
        if not (mail.poll() or mail.shutdown.requests or has_work(self.agent)):
            return False
        self._root.report_activity("running")
        added = mail.add_blocks(self.agent, ())
        if added.blocks:  # else it has come with a compaction
            self.agent.append_message("user", added.blocks, *added.records)
        return True

    async def _wait_for_mail(self) -> None:
        async with self._waiting():
            if self._unreported_children():
                await self.mail.messaging.wait_for_work()
            else:
                await wait_for_mail_or_idle_team(self.mail, self._root.spawner)


MEMORY_OFF = "is switched off, or the run is bare; there is nothing to remember with"

_Layer = TypeVar("_Layer")


def _required(layer: _Layer | None) -> _Layer:
    """*layer*, which serves the memory. Raises `ConfigInvalid` if the agent has no memory."""
    if layer is None:
        raise ConfigInvalid("memory", MEMORY_OFF)
    return layer


def _final_text(agent: Agent) -> str:
    """The text of the last reply."""
    role, blocks = agent.conversation.messages[-1]
    read = (msgspec.json.decode(block) for block in blocks if role == "assistant")
    return "".join(block["text"] for block in read if block["type"] == "text")


def _failure(error: ReplyMalformed | OSError) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}"
    return str(error)
