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
"""Characters of a text that the board keeps: more than any line shows."""
LOOKED_AT = 20
"""Characters that are looked at for each one that may be kept: most are spaces, or act on terminals."""
INTERRUPTED = "interrupted"
"""The state of an agent that was at work when its root was killed."""

Way = Literal["stored", "delivered", "dead"]

_WORDS = ("result", "feedback", "reason", "subject", "summary")
"""Members of a structured message that are words for people; the first of them that it has is its gist."""
_members = msgspec.json.Decoder(dict[str, Any])

# No two terminals agree on how wide a character is that these stand behind, or between.
_JOINERS = re.compile(
    "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2064\u3164\ufe00-\ufe0f\ufeff\uffa0\U0001f3fb-\U0001f3ff]"
)
_ACCENTS = re.compile("([\u0300-\u036f]{2})[\u0300-\u036f]+")
"""More than two on one character: they would be drawn over the lines above and below."""


def clean_text(text: str, limit: int = LONGEST) -> str:
    """*text* of others on one line, as wide as it looks, in at most *limit* characters."""
    # Of a text of a megabyte no more is looked at than could be kept.
    text = _ACCENTS.sub(r"\1", _JOINERS.sub("", text[: LOOKED_AT * limit]))
    return one_line(text, limit)


def message_gist(body: str) -> str:
    """What a message says in short."""
    if not body.startswith("{"):
        return body
    try:
        told = _members.decode(body)
    except (ValueError, RecursionError):  # no JSON, or no text that could be any
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
    """What it waits for, or why it has ended."""
    since: float = 0.0
    """When it came into this state, in seconds since 1970; 0 where nobody said."""
    parent: str | None = None
    pid: int | None = None
    model: str = ""
    kind: str = ""
    """Its definition."""
    color: str = ""
    """Of its name, as a terminal's style; nothing for one like all others."""
    turns: int = 0
    calls: tuple[tuple[str, str], ...] = ()
    """Those that run: the id, and what it is about."""
    progress: str = ""
    """What it is at, in a few words of a small model."""
    said: str = ""
    """Its last words."""
    spending: CostTotals = attrs.field(factory=CostTotals)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more comes of it by itself."""
        return self.state in END_STATES or self.state == INTERRUPTED

    @property
    def is_active(self) -> bool:
        """Whether it is at work, or would be if it got what it waits for."""
        return self.state in ("running", "waiting", "idle", "plan_pending")

    @property
    def state_text(self) -> str:
        """Its state in a word."""
        return "asks" if self.state == "plan_pending" else self.state

    @property
    def activity(self) -> str:
        """What is to be told of it beside its state."""
        if self.has_ended or self.state not in ("running", "starting"):
            return self.what
        return self.progress or self.call or self.what

    @property
    def call(self) -> str:
        """The call that runs, the newest of several."""
        return self.calls[-1][1] if self.calls else ""


@attrs.frozen(kw_only=True)
class ApprovalRow:
    """Something that waits for a yes."""

    id: str
    what: str
    """plan, or permission."""
    name: str
    by: str
    """Who decides: lead, human, or rule."""
    subject: str
    at: float


@attrs.frozen(kw_only=True)
class MailRow:
    """A message between two, or from the user."""

    id: MessageId
    at: float
    sender: str
    recipient: str
    kind: str
    gist: str
    way: Way = "stored"


@attrs.frozen(kw_only=True)
class NewsRow:
    """Something that happened."""

    at: float
    agent: str
    text: str
    is_bad: bool = False
