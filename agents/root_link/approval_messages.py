"""Messages with which agents ask the user for permissions, submit plans, and decide on plans of other agents."""

from typing import Literal

import msgspec

from coterie.agents.permissions.plan_approval import PlanDecision
from coterie.agents.permissions.types import AllowForSession, AllowOnce, Answer, DenyCall, Question
from coterie.agents.root_link.wire_format import WireRequest


class SubmitPlan(WireRequest[PlanDecision], tag="submit_plan", frozen=True):
    """Request of an agent to the root: submit its plan and wait for the decision. Cancellation withdraws the plan."""

    plan: str
    files: tuple[str, ...] = ()
    """Files that the agent would change by its plan, relative to the working directory of the agent."""


class PlanDecided(msgspec.Struct, frozen=True, kw_only=True):
    """Reply of the root to `DecidePlan`: it accepted or rejected an agent's decision on the plan of another agent."""

    refusal: str | None = None
    """Reason why the root rejected the decision; None if the root accepted it."""


class DecidePlan(WireRequest[PlanDecided], tag="decide_plan", frozen=True):
    """Request of an agent (usually the lead) to the root: approve or reject the plan that another agent submitted."""

    runs_to_end = True
    id: str
    """Id of the approval request that the root created for the submitted plan."""
    approve: bool
    feedback: str = ""
    asker: str | None = None
    """Name of the agent that must have submitted the plan, or the decision is rejected; None accepts any agent."""


LONGEST_SHOWN = 20_000
"""Maximum characters of one text in a permission prompt; the rest is cut off, so that the message fits a frame."""


class PromptAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to `PromptUser`: the answer of the user to a permission prompt for a tool call."""

    verdict: Literal["once", "session", "no"]
    reason: str = ""

    @classmethod
    def of(cls, answer: Answer) -> "PromptAnswered":
        """Return the message that carries *answer*, the answer of the user to a permission prompt."""
        if isinstance(answer, DenyCall):
            return cls(verdict="no", reason=answer.reason)
        return cls(verdict="session" if isinstance(answer, AllowForSession) else "once")

    def answer(self) -> Answer:
        """Return the answer of the user, decoded: `AllowOnce`, `AllowForSession` or `DenyCall` with the reason."""
        if self.verdict == "no":
            return DenyCall(self.reason)
        return AllowForSession() if self.verdict == "session" else AllowOnce()


class PromptUser(WireRequest[PromptAnswered], tag="ask", frozen=True, kw_only=True):
    """Request of an agent to the root, or of the root to its client: ask the user if a tool call may run.

    Cancelling it withdraws the prompt. Its JSON must not change, because stored approval requests contain it.
    """

    call: int = 0
    """Unused number, kept because the JSON of stored approval requests contains it."""
    agent: str
    tool: str
    subject: str
    details: dict[str, str]
    reason: str
    rules: list[str]
    remedy: str

    @classmethod
    def of(cls, question: Question) -> "PromptUser":
        """Return the message that carries *question*; its subject and details are cut to `LONGEST_SHOWN` characters."""
        return cls(
            agent=question.agent,
            tool=question.tool,
            subject=_beginning(question.subject),
            details={name: _beginning(text) for name, text in question.details.items()},
            reason=question.reason,
            rules=list(question.rules),
            remedy=question.remedy,
        )

    def question(self) -> Question:
        """Return the prompt, decoded, as a `Question`; a text that `of` has cut stays cut."""
        members = {name: getattr(self, name) for name in self.__struct_fields__ if name != "call"}
        return Question(**members | {"rules": tuple(self.rules)})


def _beginning(text: str) -> str:
    more = len(text) - LONGEST_SHOWN
    return f"{text[:LONGEST_SHOWN]}\n... {more:,} more characters" if more > 0 else text
