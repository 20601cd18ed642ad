"""Runner of an agent: runs its task, mail loop or offline job (such as a compaction), and emits start and end events.

Importing this module imports the SDK.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext

import attrs
import msgspec
import trio

from coterie.agents.errors import ModelUnreachable, ReplyMalformed
from coterie.agents.events.agent_events import Finished, RunStarted
from coterie.agents.layers.layer4_compaction.on_demand import OnDemandCompaction
from coterie.agents.layers.layer4_compaction.strategies import LAYER
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.loop import close_open_calls, run_loop
from coterie.agents.loop.pipeline import Steps
from coterie.agents.loop.run_result import RunEnded, RunLimits
from coterie.agents.root_link.job_messages import CompactJob, DreamJob, ExtractJob, NotCompacted, OfflineJob
from coterie.agents.runtime.first_message import NextUserMessage
from coterie.agents.runtime.mail_loop import TeamMembership, run_mail_loop, wait_for_mail_or_idle_team
from coterie.agents.runtime.setup.agent_parts import AgentParts
from coterie.agents.tools.team.agent_tool import AgentTool
from coterie.errors import ConfigInvalid


def run_started_event(parts: AgentParts, agent: Agent) -> RunStarted:
    """Return the event that a run of *agent* has started, with its model, tools, permission mode and directory."""
    spec, definition = parts.spec, parts.definition
    return RunStarted(
        session=parts.files.session.id,
        incarnation=parts.files.incarnation,
        model=parts.model.id,
        permission_mode=spec.settings.permissions.mode,
        project=str(spec.directory),
        tools=list(agent.tools),
        definition=None if definition is None else definition.name,
        sandbox=None if agent.workspace.sandbox is None else agent.workspace.sandbox.way,
        color=None if definition is None else definition.color,
    )


def run_finished_event(ended: RunEnded) -> Finished:
    """Return the event that a run has ended, with reason, result, turns, usage, cost and error from *ended*."""
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
"""Function that sends the result of a finished run to the agent's parent, if it has one."""


@attrs.frozen(kw_only=True)
class AgentRunner:
    """Runner of one agent that is completely built, but has not run in this process. `open_agent_runner` creates it."""

    parts: AgentParts
    agent: Agent
    _agent_tool: AgentTool
    _steps: Steps
    _on_demand: OnDemandCompaction

    async def run(self, report: ReportEnd) -> None:
        """Run the agent until its task is done or it must stop; send the result by *report*, then emit `Finished`.

        While sub-agents work in the background, the agent waits for their reports and continues with them.
        Cancellation stops the run immediately; recorded data stays, and the event has the reason "cancelled". Raises
        `ReplyMalformed`, `OSError`, `MailboxFailed`, and the exceptions of *report*.
        """
        await self._run_and_report(self._run, report)

    async def run_teammate(self, report: ReportEnd, *, lead: str | None) -> None:
        """Run a teammate (agent that waits for messages after its task) until it must shut down, or a run of it fails.

        Each time it becomes idle, it notifies the agent *lead*. Its last result is sent by *report*. Raises as `run`.
        """
        mail = self.parts.mail
        membership = TeamMembership(router=mail.router, sender=mail.sender, lead=lead)
        agent, messaging, idle_wait = self.agent, mail.messaging, self._on_demand.serve_while
        await self._run_and_report(
            lambda limits: run_mail_loop(
                agent, messaging, limits, membership, self.parts.root.report_activity, self._waiting, idle_wait
            ),
            report,
        )

    async def run_job(self, job: OfflineJob) -> None:
        """Run an offline job, such as a compaction, without a turn; first, add results to calls that a crash left open.

        `Agent.interrupt` stops the job before or after its change, never in between. A failure of the job becomes an
        event. Raises `ConfigInvalid` for a job that the agent cannot run, and `OSError`.
        """
        close_open_calls(self.agent)
        if self.agent.conversation.messages:
            await self._run_job(job)
            return
        # A session created for this job has no other run, so readers need the events of a run.
        end = RunEnded(reason="cancelled")
        self.agent.emit(run_started_event(self.parts, self.agent))
        try:
            await self._run_job(job)
            if not self.agent.scope.cancelled_caught:
                end = RunEnded(reason="completed")
        finally:
            self.agent.emit(run_finished_event(end))

    async def _run_job(self, job: OfflineJob) -> None:
        with self.agent.scope:
            match job:
                case CompactJob():
                    answer = await self._on_demand.run_request(self.agent, job)
                    if isinstance(answer, NotCompacted) and answer.is_for_user:
                        raise ConfigInvalid("message", answer.reason)
                    if isinstance(answer, NotCompacted):
                        self.agent.report_failure(LAYER, answer.reason)
                case ExtractJob() if self._steps.extraction is not None:
                    await self._steps.extraction.run_now()
                case DreamJob() if self._steps.dreaming is not None:
                    await self._steps.dreaming.run_now(job)
                case _:
                    raise ConfigInvalid("memory.enabled", MEMORY_OFF)

    async def _run_and_report(self, run: Callable[[RunLimits], Awaitable[RunEnded]], report: ReportEnd) -> None:
        end, given = run_finished_event(RunEnded(reason="cancelled")), self.parts.spec.settings
        limits = RunLimits(turns=given.max_turns, tokens=given.max_tokens_total, seconds=given.max_seconds)
        self.agent.emit(run_started_event(self.parts, self.agent))
        try:
            await NextUserMessage(parts=self.parts, recall=self._steps.recall)(self.agent)
            # An interrupt that arrives before the loop has started applies to this run too.
            is_interrupted = self.agent.scope.cancel_called
            ended = RunEnded(reason="cancelled") if is_interrupted else await run(limits)
            if ended.reason == "completed":
                await self._on_demand.serve(self.agent)
            await self.parts.hooks.end(ended.reason)
            # Sent before the event, because readers of the event rely on the report.
            await report(ended)
            end = run_finished_event(ended)
        except (ReplyMalformed, OSError) as exc:
            error = str(exc)
            if isinstance(exc, OSError) and exc.filename is not None:
                error = f"{exc.filename} cannot be used: {exc.strerror}; correct this and resume the session"
            end = msgspec.structs.replace(end, reason="failed", error=error)
            raise
        finally:
            self.agent.emit(end)

    async def _run(self, limits: RunLimits) -> RunEnded:
        if self.agent.has_work:
            ended = await self._run_loop(limits)
        else:
            # Spurious wake-up, or a crash after the final reply.
            role, blocks = self.agent.conversation.messages[-1]
            last = (msgspec.json.decode(block) for block in blocks if role == "assistant")
            text = "".join(block["text"] for block in last if block["type"] == "text")
            ended = RunEnded(reason="completed", text=text)
        while ended.reason == "completed":
            with trio.CancelScope() as self.agent.scope:
                is_woken = await self._has_new_work()
            if self.agent.scope.cancel_called:
                # An interrupt during the wait for other agents applies to the run too.
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

    def _unreported_children(self) -> int:
        """Return the number of sub-agents in the background whose reports have not arrived yet."""
        return len(self._agent_tool.pending - self.parts.mail.messaging.reports)

    def _waiting(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager for waits for mail; it keeps the prompt cache fresh if agents work for this one."""
        return self._agent_tool.waiting() if self._unreported_children() or self._leads_team else nullcontext()

    @property
    def _leads_team(self) -> bool:
        """True if agents may work for this one without a report to come: teammates, or sub-agents messaged again."""
        tool, has_sent = self._agent_tool, self.parts.mail.router.has_sent
        return self.parts.leads_team or tool.has_teammate or (tool.has_started and has_sent)

    async def _has_new_work(self) -> bool:
        """Wait for mail while other agents work for this one; deliver it. Return True if this agent has new work."""
        unreported, mail, root = self._unreported_children(), self.parts.mail.messaging, self.parts.root
        if not (unreported or self._leads_team):
            return False
        others = f"{unreported} agent{'s' if unreported > 1 else ''}" if unreported else "the team"
        root.report_activity("waiting", others)
        await self._on_demand.serve_while(self.agent, self._wait_for_mail)
        if not (mail.poll() or mail.shutdown.requests or self.agent.has_work):
            return False
        root.report_activity("running")
        mail.deliver(self.agent)  # A compaction may have done so already.
        return True

    async def _wait_for_mail(self) -> None:
        async with self._waiting():
            if self._unreported_children():
                await self.parts.mail.messaging.wait_for_work()
            else:
                await wait_for_mail_or_idle_team(self.parts.mail, self.parts.root.services)


MEMORY_OFF = "memory is off for this agent, so nothing can be updated; set memory.enabled = true, and omit --bare"
