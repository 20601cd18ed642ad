"""Rows of the board: agents, approvals, mail and news, with sanitized text."""

import re
from typing import Any, Literal

import attrs
import msgspec

from coterie.mailbox.envelope import MessageId
from coterie.orchestrator.cli.output import one_line
from coterie.orchestrator.gateway.cost_totals import CostTotals
from coterie.orchestrator.session.overview import END_STATES

LONGEST = 400
"""Characters of a text that the board keeps; more than a line shows."""
LOOKED_AT = 20
"""Characters read for each one that is kept, because many are spaces or control characters."""
INTERRUPTED = "interrupted"
"""State of an agent that was running when its root was killed."""

Way = Literal["stored", "delivered", "dead"]

_WORDS = ("result", "feedback", "reason", "subject", "summary")
"""Keys of a structured message that hold text for people; the first one present is its gist."""
_members = msgspec.json.Decoder(dict[str, Any])

# Terminals disagree about the width of sequences with these characters.
_JOINERS = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2064\u3164\ufe00-\ufe0f\ufeff\uffa0\U0001f3fb-\U0001f3ff]"
)
_ACCENTS = re.compile("([\u0300-\u036f]{2})[\u0300-\u036f]+")
"""More than two accents on one character, which would be drawn over the lines above and below."""


def clean_text(text: str, limit: int = LONGEST) -> str:
    """*text* sanitized on one line of predictable width, in at most *limit* characters."""
    # A long text is cut first, so that a megabyte does not have to be searched.
    text = _ACCENTS.sub(r"\1", _JOINERS.sub("", text[: LOOKED_AT * limit]))
    return one_line(text, limit)


def message_gist(body: str) -> str:
    """Short form of a message."""
    if not body.startswith("{"):
        return body
    try:
        told = _members.decode(body)
    except (ValueError, RecursionError):  # not JSON
        return body
    words = next((str(told[name]) for name in _WORDS if told.get(name)), "")
    return ": ".join(part for part in (str(told.get("status", "")), words) if part) or body


@attrs.frozen(kw_only=True)
class AgentRow:
    """One agent."""

    name: str
    incarnation: int = 1
    state: str = "starting"
    what: str = ""
    """Reason for the state: the pending request, or the cause of the end."""
    since: float = 0.0
    """Time of the last state change in seconds since 1970; 0 if unknown."""
    parent: str | None = None
    pid: int | None = None
    model: str = ""
    kind: str = ""
    """Agent type."""
    color: str = ""
    """Style of the agent's name; empty for the default."""
    turns: int = 0
    calls: tuple[tuple[str, str], ...] = ()
    """Running calls: id and text."""
    progress: str = ""
    """Last progress summary."""
    said: str = ""
    """Last text of the agent."""
    spending: CostTotals = attrs.field(factory=CostTotals)

    @property
    def has_ended(self) -> bool:
        """True if the agent has ended or was interrupted."""
        return self.state in END_STATES or self.state == INTERRUPTED

    @property
    def is_active(self) -> bool:
        """True if the agent is running, or would be after an answer."""
        return self.state in ("running", "waiting", "idle", "plan_pending")

    @property
    def state_text(self) -> str:
        """Name of the state."""
        return "asks" if self.state == "plan_pending" else self.state

    @property
    def activity(self) -> str:
        """Text next to the state."""
        if self.has_ended or self.state not in ("running", "starting"):
            return self.what
        return self.progress or self.call or self.what

    @property
    def call(self) -> str:
        """The newest running call."""
        return self.calls[-1][1] if self.calls else ""


@attrs.frozen(kw_only=True)
class ApprovalRow:
    """One open approval."""

    id: str
    what: str
    """`plan` or `permission`."""
    name: str
    by: str
    """Decider: lead, human or rule."""
    subject: str
    at: float


@attrs.frozen(kw_only=True)
class MailRow:
    """One message."""

    id: MessageId
    at: float
    sender: str
    recipient: str
    kind: str
    gist: str
    way: Way = "stored"


@attrs.frozen(kw_only=True)
class NewsRow:
    """One line of news."""

    at: float
    agent: str
    text: str
    is_bad: bool = False
