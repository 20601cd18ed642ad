"""The Agent tool: a task for another agent, and its report."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import ClassVar

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
from coterie.agents.tools.schema import described
from coterie.agents.tools.tool import RESULT_CAP, Access, ToolResult, Workspace
from coterie.mailbox.errors import MailboxError

LATER = "Its report will come as a message."


@attrs.frozen(kw_only=True)
class AgentInput:
    """Which agent, and for what."""

    description: str = attrs.field(metadata=described("What it is for, in 3 to 5 words."))
    prompt: str = attrs.field(metadata=described("The whole task: the agent is told nothing else."))
    subagent_type: str = attrs.field(default=GENERAL, metadata=described("One of the kinds of agents."))
    name: str | None = attrs.field(default=None, metadata=described("A name for it; without one it gets one."))
    run_in_background: bool = attrs.field(default=False, metadata=described("Go on without waiting for its report."))
    stays: bool = attrs.field(
        default=False, metadata=described("Keep it as a teammate: when the task is done it waits for messages.")
    )
    isolation: Isolation | None = attrs.field(
        default=None, metadata=described("worktree: it works in a git worktree of its own.")
    )
    plan_required: bool = attrs.field(
        default=False, metadata=described("Let it only read until its plan is approved; it works in the background.")
    )


@attrs.define(eq=False)
class AgentTool:
    """Starts agents for one agent, and waits for those that are not to run in the background."""

    spawner: Spawner
    mail: Messaging
    agent_types: Mapping[str, str]
    """Purpose of each type of agents, by name."""
    fork_point: Callable[[], Path] | None = None
    """Writes the fork point of the agent as it is now; None without forks. Raises `ToolFailed`."""
    waiting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """Block around each wait for a report; the blocks of calls that were made together overlap."""
    pending: set[str] = attrs.field(factory=set)
    """Ids of reports that have not arrived, of agents in the background."""
    has_started: bool = False
    """True if the agent has started another agent."""
    has_teammate: bool = False
    """True if a teammate works for the agent without owing a report."""
    description: str = attrs.field(init=False)
    _waits: dict[str, trio.CancelScope] = attrs.field(factory=dict, init=False)
    """Waits for reports, by the names of the agents."""
    _released: dict[str, str] = attrs.field(factory=dict, init=False)
    """Reasons why a wait was ended, by the names of the agents."""

    name: ClassVar = "Agent"
    input_type: ClassVar = AgentInput
    access: ClassVar[Access] = "spawn"
    is_clearable: ClassVar = False
    result_cap: ClassVar[int | None] = RESULT_CAP

    def __attrs_post_init__(self) -> None:
        lines = (f"- {name}: {' '.join(purpose.split())}" for name, purpose in sorted(self.agent_types.items()))
        self.description = render("tools/agent", kinds="\n".join(lines))

    def paths_affected(self, _arguments: AgentInput, _workspace: Workspace) -> tuple[Path, ...]:
        """Nothing by itself; the agent is held to the same permissions."""
        return ()

    async def run(self, arguments: AgentInput, _workspace: Workspace) -> ToolResult:
        """The report, or of an agent in the background its name. Cancelled, the report comes as mail later."""
        request = SpawnRequest(
            task=arguments.prompt,
            definition=arguments.subagent_type,
            name=arguments.name,
            fork=self._fork_point(arguments),
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
            return ToolResult(text=f"{spawned.name} is at work, and stays. Write to it with SendMessage.")
        self.pending.add(spawned.report)
        # Whoever may have to judge its plan must not wait for its report first.
        if arguments.run_in_background or request.fork is not None or arguments.plan_required:
            return ToolResult(text=f"{spawned.name} works in the background. {LATER}")
        return await self._wait(spawned)

    def _fork_point(self, arguments: AgentInput) -> str | None:
        if arguments.subagent_type != FORK or self.fork_point is None:
            return None
        if arguments.plan_required:
            raise ToolFailed("A fork cannot be asked for a plan. Start another kind, or let the fork begin.")
        return str(self.fork_point())

    def release(self, name: str, why: str = "") -> None:
        """Go on without waiting for *name*, if it is waited for, because the user says so, or for another reason."""
        if name in self._waits:
            self._released[name] = why
            self._waits[name].cancel()

    def _moved(self, name: str) -> str:
        if why := self._released.pop(name, ""):
            return f"{name} works on in the background, because {why}."
        return f"The user moved {name} to the background."

    async def _wait(self, spawned: Spawned) -> ToolResult:
        scope = self._waits[spawned.name] = trio.CancelScope()
        try:
            with scope:
                async with self.waiting():
                    envelope = await self.mail.wait_for_report(spawned.report)
        except MailboxError as exc:
            reason = f"{spawned.name} works, but its report cannot be waited for: {exc}. It will come as a message."
            raise ToolFailed(reason) from exc
        finally:
            del self._waits[spawned.name]
        if scope.cancelled_caught:
            return ToolResult(text=f"{self._moved(spawned.name)} {LATER}")
        self.pending.discard(spawned.report)
        return ToolResult(text=f"{spawned.name} has ended. {task_report_text(envelope)}")
