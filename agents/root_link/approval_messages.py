"""Messages about permission prompts and plan approvals."""

from typing import Literal

from coterie.agents.permissions.rules import Rule
from coterie.agents.permissions.types import AllowForSession, AllowOnce, Answer, DenyCall, Question
from coterie.agents.root_link.message import WireMessage


class SubmitPlan(WireMessage, tag="submit_plan", frozen=True):
    """The agent's plan, for a yes. Answered by `PlanReviewed`, however long that takes."""

    call: int
    plan: str
    files: tuple[str, ...] = ()
    """What it would change, relative to where the agent works."""


class WithdrawPlan(WireMessage, tag="withdraw_plan", frozen=True):
    """The agent does not wait for this answer any more."""

    call: int


class PlanReviewed(WireMessage, tag="plan_judged", frozen=True):
    """What was decided over a plan."""

    call: int
    approve: bool
    by: str
    """lead, human, or rule."""
    feedback: str = ""


class DecidePlan(WireMessage, tag="decide_plan", frozen=True):
    """An agent decides over the plan of another. Answered by `PlanDecided`."""

    call: int
    id: str
    """Of the approval."""
    approve: bool
    feedback: str = ""
    asker: str | None = None
    """Whose plan it is meant to be; None for whoever's it is."""


class PlanDecided(WireMessage, tag="plan_decided", frozen=True):
    """Whether that counted."""

    call: int
    refusal: str | None = None
    """Why it did not."""


LONGEST_SHOWN = 20_000
"""Characters of one argument in a question: more than anybody reads, and few enough for a frame."""


class PromptUser(WireMessage, tag="ask", frozen=True):
    """May this call be made? Asked of the user; answered by `PromptAnswered`, or taken back by `WithdrawPrompt`."""

    call: int
    agent: str
    tool: str
    subject: str
    details: dict[str, str]
    reason: str
    rules: list[str]
    remedy: str

    @classmethod
    def of(cls, call: int, question: Question) -> "PromptUser":
        """The word for *question*; of what is too long to be looked at, its beginning."""
        return cls(
            call=call,
            agent=question.agent,
            tool=question.tool,
            subject=_beginning(question.subject),
            details={name: _beginning(text) for name, text in question.details.items()},
            reason=question.reason,
            rules=[rule.text for rule in question.rules],
            remedy=question.remedy,
        )

    def question(self) -> Question:
        """What is asked. Raises `ConfigInvalid` for rules that are none."""
        members = {name: getattr(self, name) for name in self.__struct_fields__ if name != "call"}
        rules = tuple(Rule.parse(text, "a question") for text in self.rules)
        return Question(**members | {"rules": rules})


class WithdrawPrompt(WireMessage, tag="take_back", frozen=True):
    """A question needs no answer any more."""

    call: int


class PromptAnswered(WireMessage, tag="answered", frozen=True):
    """What the user said."""

    call: int
    verdict: Literal["once", "session", "no"]
    reason: str = ""

    @classmethod
    def of(cls, call: int, answer: Answer) -> "PromptAnswered":
        """The word for *answer*."""
        if isinstance(answer, DenyCall):
            return cls(call=call, verdict="no", reason=answer.reason)
        return cls(call=call, verdict="session" if isinstance(answer, AllowForSession) else "once")

    def answer(self) -> Answer:
        """What to make of it."""
        if self.verdict == "no":
            return DenyCall(self.reason)
        return AllowForSession() if self.verdict == "session" else AllowOnce()


def _beginning(text: str) -> str:
    more = len(text) - LONGEST_SHOWN
    return f"{text[:LONGEST_SHOWN]}\n... {more:,} more characters" if more > 0 else text
