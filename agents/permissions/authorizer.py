"""Authorizer of a running agent: decides on its tool calls by its permissions, or else by a prompt for the user."""

from collections.abc import Callable
from typing import Any

import attrs
import trio

from coterie.agents.events.agent_events import PermissionDecided
from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.rules import Rule
from coterie.agents.permissions.types import (
    Allowed,
    AllowForSession,
    Denied,
    DenyCall,
    NeedsPrompt,
    UserPrompter,
    Verdict,
    Vote,
)
from coterie.agents.tools.tool import Tool, Workspace

USER = "user"


@attrs.define(eq=False)
class Authorizer:
    """Decides on the tool calls of one agent. Rules that the user grants at a prompt are kept in memory only."""

    permissions: Permissions
    """Permissions of the agent. They may be replaced at any time; the next call uses the new ones."""
    asker: UserPrompter | None = None
    on_decision: Callable[[PermissionDecided], None] = lambda _: None
    """Called with each prompt, and with each decision, unless the mode or the kind of tool simply allows the call."""
    granted: list[Rule] = attrs.field(factory=list)
    _asking: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def denial(self, tool: Tool, arguments: Any, workspace: Workspace, vote: Vote | None = None) -> str | None:
        """Return the reason why the call is denied, as a text for the model; None if the call may run.

        *vote* is the combined vote of hooks. May wait for the user's answer to a prompt, one at a time; without `asker`
        that is a denial. Cancellation grants nothing. Raises `ToolFailed` if a path or URL in *arguments* is invalid.
        """
        verdict = self.permissions.evaluate(tool, arguments, workspace, self.granted, vote)
        if isinstance(verdict, NeedsPrompt) and self.asker is not None:
            async with self._asking:
                # The answer to the previous prompt may have granted a rule for this call.
                verdict = self.permissions.evaluate(tool, arguments, workspace, self.granted, vote)
                if isinstance(verdict, NeedsPrompt):
                    verdict = await self._ask(self.asker, verdict)
        if isinstance(verdict, Allowed):
            if verdict.by is not None:
                self.on_decision(PermissionDecided(tool=tool.name, verdict="allowed", by=verdict.by, reason=""))
            return None
        reason = verdict.reason if isinstance(verdict, Denied) else verdict.question.unanswered()
        self.on_decision(PermissionDecided(tool=tool.name, verdict="denied", by=verdict.by, reason=reason))
        return reason

    async def _ask(self, asker: UserPrompter, asks: NeedsPrompt) -> Verdict:
        question = asks.question
        self.on_decision(PermissionDecided(tool=question.tool, verdict="asked", by=asks.by, reason=question.reason))
        answer = await asker.ask(question)
        if isinstance(answer, DenyCall):
            reason = f"The user refused this call: {answer.reason}" if answer.reason else "The user refused this call."
            return Denied(by=USER, reason=reason)
        if isinstance(answer, AllowForSession):
            self.granted += asks.rules
        return Allowed(by=USER)
