"""The Agent tool: starts another agent for a task, and returns the report of that agent."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import attrs
import trio

from coterie.agents.errors import ToolFailed
from coterie.agents.layers.layer7_messaging import Messaging
from coterie.agents.layers.message_blocks import task_report_text
from coterie.agents.permissions.plan_approval import PlanPolicy
from coterie.agents.prompts import render
from coterie.agents.root_link.spawn_request import (
    FORK,
    GENERAL,
    Isolation,
    Spawned,
    Spawner,
    SpawnRefused,
    SpawnRequest,
)
from coterie.agents.tools.tool import BuiltInTool, ToolResult, Workspace
from coterie.mailbox.errors import MailboxError

LATER = "Its report will come as a message."


@attrs.frozen(kw_only=True)
class AgentInput:
    """Arguments of a call of the Agent tool, which starts an agent."""

    description: Annotated[str, "The purpose of the agent, in 3 to 5 words."]
    prompt: Annotated[str, "The complete task: the agent gets no other information."]
    subagent_type: Annotated[str, "The type of the agent."] = GENERAL
    name: Annotated[str | None, "A name for the agent; generated if not given."] = None
    run_in_background: Annotated[bool, "Continue without waiting for its report."] = False
    stays: Annotated[bool, "Keep it as a teammate: after the task it waits for messages."] = False
    isolation: Annotated[Isolation | None, "worktree: the agent works in its own git worktree."] = None
    plan_required: Annotated[bool, "The agent may only read until its plan is approved; it runs in the background."] = (
        False
    )


@attrs.define(eq=False)
class AgentTool(BuiltInTool, name="Agent", input_type=AgentInput, access="spawn"):
    """Tool with which an agent starts other agents, and waits for the reports of those not in the background."""

    spawner: Spawner
    mail: Messaging
    agent_types: Mapping[str, str]
    """Name of each agent type that can be started -> its purpose, for the description of the tool."""
    fork_point: Callable[[], Path] | None = None
    """Function that saves the agent's conversation for a fork to continue, and returns the file; None without forks."""
    waiting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """Function that returns a context manager to enter while a call waits for a report; several calls may overlap."""
    pending: set[str] = attrs.field(factory=set)
    """Ids of the reports of started agents that no call has returned; later they arrive as messages."""
    has_started: bool = False
    """True if this tool has started an agent since this process began to run the agent."""
    has_teammate: bool = False
    """True if an agent may work without a report to come: a teammate or, after a restart, one messaged again."""
    description: str = attrs.field(init=False)
    _waits: dict[str, trio.CancelScope] = attrs.field(factory=dict, init=False)
    """Name of a started agent -> cancel scope of the call that waits for its report."""
    _released: dict[str, str] = attrs.field(factory=dict, init=False)
    """Name of a started agent -> reason for which `release` has cancelled the wait for its report."""

    def __attrs_post_init__(self) -> None:
        lines = (f"- {name}: {' '.join(purpose.split())}" for name, purpose in sorted(self.agent_types.items()))
        self.description = render("tools/Agent", kinds="\n".join(lines))

    async def run(self, arguments: AgentInput, _workspace: Workspace) -> ToolResult:
        """Start an agent, wait for its report and return it; for a teammate or background agent, return only its name.

        After cancellation, the report arrives later as a message. Raises `ToolFailed` if the agent cannot be started.
        """
        fork = None
        if arguments.subagent_type == FORK and self.fork_point is not None:
            if arguments.plan_required:
                raise ToolFailed("Agents of type fork cannot submit a plan. Start another type, or omit plan_required.")
            fork = str(self.fork_point())
        request = SpawnRequest(
            task=arguments.prompt,
            definition=arguments.subagent_type,
            name=arguments.name,
            fork=fork,
            stays=arguments.stays,
            isolation=arguments.isolation,
            plan=PlanPolicy() if arguments.plan_required else None,
        )
        try:
            spawned = await self.spawner.spawn(request)
        except SpawnRefused as exc:
            raise ToolFailed(exc.reason) from exc
        self.has_started = True
        if arguments.stays:
            self.has_teammate = True
            return ToolResult(text=f"{spawned.name} is running as a teammate. Write to it with SendMessage.")
        self.pending.add(spawned.report)
        # This agent may have to approve the plan, so it must not wait for the report.
        if arguments.run_in_background or request.fork is not None or arguments.plan_required:
            return ToolResult(text=f"{spawned.name} works in the background. {LATER}")
        return await self._wait(spawned)

    def release(self, name: str, why: str = "") -> None:
        """Stop waiting for agent *name*, which continues in the background; *why* is empty if the user requested it."""
        if name in self._waits:
            self._released[name] = why
            self._waits[name].cancel()

    async def _wait(self, spawned: Spawned) -> ToolResult:
        scope = self._waits[spawned.name] = trio.CancelScope()
        try:
            with scope:
                async with self.waiting():
                    envelope = await self.mail.wait_for_report(spawned.report)
        except MailboxError as exc:
            reason = f"{spawned.name} is running, but the wait for its report failed: {exc}. {LATER}"
            raise ToolFailed(reason) from exc
        finally:
            del self._waits[spawned.name]
        if scope.cancelled_caught:
            if why := self._released.pop(spawned.name, ""):
                return ToolResult(text=f"{spawned.name} continues in the background, because {why}. {LATER}")
            return ToolResult(text=f"The user moved {spawned.name} to the background. {LATER}")
        self.pending.discard(spawned.report)
        return ToolResult(text=f"{spawned.name} has ended. {task_report_text(envelope)}")
