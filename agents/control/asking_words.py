"""What is said where the user is asked for permission."""

from typing import Literal

from coterie.agents.control.word import Word
from coterie.agents.permissions import Answer, ForSession, Once, Question, Refusal, Rule

LONGEST_SHOWN = 20_000
"""Characters of one argument in a question: more than anybody reads, and few enough for a frame."""


class Ask(Word, tag="ask", frozen=True):
    """May this call be made? Asked of the user; answered by `Answered`, or taken back by `TakeBack`."""

    call: int
    agent: str
    tool: str
    subject: str
    details: dict[str, str]
    reason: str
    rules: list[str]
    remedy: str

    @classmethod
    def of(cls, call: int, question: Question) -> "Ask":
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


class TakeBack(Word, tag="take_back", frozen=True):
    """A question needs no answer any more."""

    call: int


class Answered(Word, tag="answered", frozen=True):
    """What the user said."""

    call: int
    verdict: Literal["once", "session", "no"]
    reason: str = ""

    @classmethod
    def of(cls, call: int, answer: Answer) -> "Answered":
        """The word for *answer*."""
        if isinstance(answer, Refusal):
            return cls(call=call, verdict="no", reason=answer.reason)
        return cls(call=call, verdict="session" if isinstance(answer, ForSession) else "once")

    def answer(self) -> Answer:
        """What to make of it."""
        if self.verdict == "no":
            return Refusal(self.reason)
        return ForSession() if self.verdict == "session" else Once()


def _beginning(text: str) -> str:
    more = len(text) - LONGEST_SHOWN
    return f"{text[:LONGEST_SHOWN]}\n... {more:,} more characters" if more > 0 else text
