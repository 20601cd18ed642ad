"""An approval that was asked for: what stands in its file, and what everybody is shown of it."""

from typing import Literal

import attrs
import msgspec

from coterie.agents.approvals.policy import Approver
from coterie.agents.control.asking_words import Ask

What = Literal["plan", "permission"]
Closed = Literal["approved", "rejected", "withdrawn"]
State = Literal["open"] | Closed
SUBJECT = 200
"""Characters of a plan's first line, or of a call, that a list shows."""


@attrs.frozen(kw_only=True)
class Claim:
    """What an agent wants a yes to."""

    what: What
    agent: str
    incarnation: int
    """Which start of the agent wants it; of several, the last."""
    approver: Approver
    """Who decides, by the policy."""
    paths: tuple[str, ...] = ()
    """Of a rule: patterns of the only files that may be changed."""
    plan: str = ""
    files: tuple[str, ...] = ()
    """What the plan would change, relative to where the agent works."""
    question: Ask | None = None
    """The call that needs a permission."""

    def is_same(self, other: "Claim") -> bool:
        """Whether it asks for the same, be it by another start of the agent."""
        return attrs.evolve(self, incarnation=0) == attrs.evolve(other, incarnation=0)

    def gives_way_to(self, other: "Claim") -> bool:
        """Whether nobody can want this any more when the same agent wants *other*: it has one plan at a time."""
        is_older = self.incarnation < other.incarnation
        return self.what == other.what and (other.what == "plan" or is_older)


@attrs.frozen(kw_only=True)
class Approval:
    """A claim, and what was decided over it."""

    id: str
    """Unique in the session; also the id of the message with which the lead is asked."""
    claim: Claim
    asked_at: float
    """Seconds since 1970."""
    state: State = "open"
    by: str = ""
    """Who decided: lead, human or rule; of one that was withdrawn, the agent itself."""
    feedback: str = ""
    """What the agent is told besides; of one that was withdrawn, why nobody wants it any more."""
    decided_at: float | None = None
    is_past: bool = False
    """Whether the agent has ended: another one of that name asks for itself."""

    @property
    def is_open(self) -> bool:
        """Whether nobody has decided, and the agent may still want it."""
        return self.state == "open"

    @property
    def subject(self) -> str:
        """The plan's first line, or the call; on one line."""
        question = self.claim.question
        text = self.claim.plan if question is None else f"{question.tool} {question.subject}"
        line = " ".join(next(iter(text.strip().splitlines()), "").split())
        return line if len(line) <= SUBJECT else f"{line[:SUBJECT]}..."

    def to_bytes(self) -> bytes:
        """One JSON object."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Approval":
        """What `to_bytes` wrote. Raises `ValueError`."""
        return msgspec.json.decode(data, type=cls)
