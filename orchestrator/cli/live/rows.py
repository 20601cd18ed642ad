"""Rows of the board (live display of a session): agents, approvals, mail and news, with sanitized text."""

import re
from typing import Any, Literal

import attrs
import msgspec

from coterie.mailbox.envelope import MessageId
from coterie.orchestrator.cli.output import one_line
from coterie.orchestrator.gateway.cost_totals import CostTotals
from coterie.orchestrator.session.overview import END_STATES

LONGEST = 400
"""Maximum characters that the board stores of one text, such as a reply; more than a terminal line shows."""
LOOKED_AT = 20
"""Number of characters that `clean_text` reads for each character of its limit, because it may drop most of them."""
INTERRUPTED = "interrupted"
"""State of an agent that had not ended when the root (supervisor process of the session) was killed."""

Way = Literal["stored", "delivered", "dead"]

_WORDS = ("result", "feedback", "reason", "subject", "summary")
"""Keys of a structured message (JSON object) with text for people; the board shows the first that is not empty."""
_members = msgspec.json.Decoder(dict[str, Any])

# Terminals disagree about the width of sequences with these characters.
_JOINERS = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2064\u3164\ufe00-\ufe0f\ufeff\uffa0\U0001f3fb-\U0001f3ff]"
)
_ACCENTS = re.compile("([\u0300-\u036f]{2})[\u0300-\u036f]+")
"""Three or more accents on one character, reduced to two, because they would be drawn over neighboring lines."""


def clean_text(text: str, limit: int = LONGEST) -> str:
    """Return *text* on one line, without control characters and those of unclear width, cut to *limit* characters."""
    # A long text is cut first, so that a megabyte does not have to be searched.
    text = _ACCENTS.sub(r"\1", _JOINERS.sub("", text[: LOOKED_AT * limit]))
    return one_line(text, limit)


def message_gist(body: str) -> str:
    """Return status and main text of *body* if it is a JSON object with such keys, else *body* unchanged."""
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
    """Properties of one agent that the board shows, such as state, running tool calls and costs."""

    name: str
    incarnation: int = 1
    state: str = "starting"
    what: str = ""
    """Reason for the state, such as the request on which the agent waits, or the cause of its end; may be empty."""
    since: float = 0.0
    """Time when the agent entered its state, in seconds since 1970; 0 if unknown."""
    parent: str | None = None
    pid: int | None = None
    model: str = ""
    kind: str = ""
    """Name of the agent type, such as `reviewer`; empty for an agent without a type."""
    color: str = ""
    """Color of the agent's name as `#rrggbb`; empty for the terminal's default color."""
    turns: int = 0
    calls: tuple[tuple[str, str], ...] = ()
    """Tool calls that are running, oldest first: id and short text of each, such as `Read src/a.py`."""
    progress: str = ""
    """Last one-line summary of the agent's work, written by a small model; empty if there is none in this run."""
    said: str = ""
    """Text of the agent's last reply that has text, on one line; empty before the first."""
    spending: CostTotals = attrs.field(factory=CostTotals)

    @property
    def has_ended(self) -> bool:
        """True if the agent's state is done, failed, killed or interrupted, so that it no longer runs."""
        return self.state in END_STATES or self.state == INTERRUPTED

    @property
    def is_active(self) -> bool:
        """True if the state is running, waiting, idle or plan_pending; False while starting, stopping or stalled."""
        return self.state in ("running", "waiting", "idle", "plan_pending")

    @property
    def state_text(self) -> str:
        """State as the board shows it: `asks` for `plan_pending`, otherwise the value of `state`."""
        return "asks" if self.state == "plan_pending" else self.state

    @property
    def activity(self) -> str:
        """Text next to the state: progress or tool call while running or starting, otherwise the reason `what`."""
        if self.has_ended or self.state not in ("running", "starting"):
            return self.what
        return self.progress or self.call or self.what

    @property
    def call(self) -> str:
        """Text of the running tool call that started last; empty if no call is running."""
        return self.calls[-1][1] if self.calls else ""


@attrs.frozen(kw_only=True)
class ApprovalRow:
    """Approval request of an agent that is not decided yet, as the board lists it."""

    id: str
    what: str
    """Kind of the request: `plan` (the agent's plan) or `permission` (a tool call)."""
    name: str
    by: str
    """Approver that was asked: `lead` (first agent), `human` (user) or `rule`; the user may decide any request."""
    subject: str
    at: float


@attrs.frozen(kw_only=True)
class MailRow:
    """Message to or from an agent, as the board lists it: sender, recipient, kind, short text and delivery state."""

    id: MessageId
    at: float
    sender: str
    recipient: str
    kind: str
    gist: str
    way: Way = "stored"


@attrs.frozen(kw_only=True)
class NewsRow:
    """Line of the board's list of events: time, agent and text; the text is red if `is_bad`."""

    at: float
    agent: str
    text: str
    is_bad: bool = False
