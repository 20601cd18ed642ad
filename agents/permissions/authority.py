"""Who decides over the calls of a running agent: its permissions, and where they leave it open, the user."""

from collections.abc import Callable
from typing import Any, Literal, Protocol

import attrs
import trio

from coterie.agents.permissions.decision import Allowed, Asks, Denied, Permissions, Question, Verdict, Vote
from coterie.agents.permissions.rules import Rule
from coterie.agents.tools.tool import Tool, Workspace

USER = "user"


@attrs.frozen
class Once:
    """Yes, this call."""


@attrs.frozen
class ForSession:
    """Yes, and whatever else the question's rules mean."""


@attrs.frozen
class Refusal:
    """No."""

    reason: str = ""
    """What the model should know or do instead."""


Answer = Once | ForSession | Refusal


class Asker(Protocol):
    """Somebody who can be asked."""

    async def ask(self, question: Question) -> Answer:
        """Wait for an answer, as long as it takes. Never called twice at the same time; may be cancelled."""
        ...


@attrs.frozen(kw_only=True)
class Decision:
    """A step in deciding over a call that was not simply allowed by the mode; for the record."""

    tool: str
    verdict: Literal["allowed", "asked", "denied"]
    by: str
    """The rule, the mode, the role limit, `hook`, or `user`."""
    reason: str = ""


@attrs.define(eq=False)
class Authority:
    """Decides over the calls of one agent; what the user grants is kept here, in memory only."""

    permissions: Permissions
    """May be replaced at any time; holds from the next call on."""
    asker: Asker | None = None
    tell: Callable[[Decision], None] = lambda _: None
    granted: list[Rule] = attrs.field(factory=list)
    _asking: trio.Lock = attrs.field(factory=trio.Lock, init=False)

    async def denial(self, tool: Tool, arguments: Any, workspace: Workspace, vote: Vote | None = None) -> str | None:
        """Why a call is denied, in words for the model; None if it may be made. Raises `ToolFailed` as `touches` does.

        *vote* is what hooks want. One question is asked at a time. Cancellation while one is open grants nothing.
        """
        verdict = self.permissions.judge(tool, arguments, workspace, self.granted, vote)
        if isinstance(verdict, Asks) and self.asker is not None:
            async with self._asking:
                # The answer to the question before may have settled this one.
                verdict = self.permissions.judge(tool, arguments, workspace, self.granted, vote)
                if isinstance(verdict, Asks):
                    verdict = await self._ask(self.asker, verdict)
        return self._announce(tool, verdict)

    async def _ask(self, asker: Asker, asks: Asks) -> Verdict:
        question = asks.question
        self.tell(Decision(tool=question.tool, verdict="asked", by=asks.by, reason=question.reason))
        answer = await asker.ask(question)
        if isinstance(answer, Refusal):
            reason = f"The user refused this call: {answer.reason}" if answer.reason else "The user refused this call."
            return Denied(by=USER, reason=reason)
        if isinstance(answer, ForSession):
            self.granted += question.rules
        return Allowed(by=USER)

    def _announce(self, tool: Tool, verdict: Verdict) -> str | None:
        if isinstance(verdict, Allowed):
            if verdict.by is not None:
                self.tell(Decision(tool=tool.name, verdict="allowed", by=verdict.by))
            return None
        reason = verdict.reason if isinstance(verdict, Denied) else verdict.question.unanswered()
        self.tell(Decision(tool=tool.name, verdict="denied", by=verdict.by, reason=reason))
        return reason
