"""Messages about permission prompts and plan approvals."""

from typing import Literal

import msgspec

from coterie.agents.permissions.plan_approval import PlanDecision
from coterie.agents.permissions.types import AllowForSession, AllowOnce, Answer, DenyCall, Question
from coterie.agents.root_link.wire_format import WireRequest


class SubmitPlan(WireRequest[PlanDecision], tag="submit_plan", frozen=True):
    """Request for approval of the agent's plan; waits for the decision without a timeout.

    Cancellation withdraws the plan.
    """

    plan: str
    files: tuple[str, ...] = ()
    """Files that the plan would change, relative to the working directory of the agent."""


class PlanDecided(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to `DecidePlan`."""

    refusal: str | None = None
    """Reason why the decision was rejected; None if it was accepted."""


class DecidePlan(WireRequest[PlanDecided], tag="decide_plan", frozen=True):
    """Decision of one agent about the plan of another."""

    runs_to_end = True
    id: str
    """Id of the approval."""
    approve: bool
    feedback: str = ""
    asker: str | None = None
    """Agent that must have submitted the plan; None for any agent."""


LONGEST_SHOWN = 20_000
"""Maximum length of one argument in a prompt, in characters: more than a user reads, and short enough for a frame."""


class PromptAnswered(msgspec.Struct, frozen=True, kw_only=True):
    """Reply to `PromptUser`."""

    verdict: Literal["once", "session", "no"]
    reason: str = ""

    @classmethod
    def of(cls, answer: Answer) -> "PromptAnswered":
        """Encode *answer*."""
        if isinstance(answer, DenyCall):
            return cls(verdict="no", reason=answer.reason)
        return cls(verdict="session" if isinstance(answer, AllowForSession) else "once")

    def answer(self) -> Answer:
        """Return the user's answer."""
        if self.verdict == "no":
            return DenyCall(self.reason)
        return AllowForSession() if self.verdict == "session" else AllowOnce()


class PromptUser(WireRequest[PromptAnswered], tag="ask", frozen=True, kw_only=True):
    """Request to the user for permission to run a tool call. Cancellation withdraws the prompt.

    Approvals store this message, so its JSON must not change.
    """

    call: int = 0
    """Not used; a part of the stored form."""
    agent: str
    tool: str
    subject: str
    details: dict[str, str]
    reason: str
    rules: list[str]
    remedy: str

    @classmethod
    def of(cls, question: Question) -> "PromptUser":
        """Encode *question*, with long texts cut."""
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
        """Return the question, with long texts cut."""
        members = {name: getattr(self, name) for name in self.__struct_fields__ if name != "call"}
        return Question(**members | {"rules": tuple(self.rules)})


def _beginning(text: str) -> str:
    more = len(text) - LONGEST_SHOWN
    return f"{text[:LONGEST_SHOWN]}\n... {more:,} more characters" if more > 0 else text
