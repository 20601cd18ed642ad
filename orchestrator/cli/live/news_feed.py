"""News feed of the board: selects the events of a session that get a line on the board, and renders their text."""

from decimal import Decimal

import attrs

from coterie.agents.events.agent_events import (
    Event,
    Finished,
    Noticed,
    PermissionDecided,
    ProgressSummarized,
    Retrying,
    RunStarted,
    ToolEnded,
)
from coterie.agents.events.event_reader import EpochBegan, LineUnreadable, MessageRecorded, SessionEvent
from coterie.agents.events.layer_events import (
    BreakerTripped,
    CacheBroke,
    Compacted,
    LayerFailed,
    ResultsCleared,
    WindowFilling,
)
from coterie.agents.events.root_events import (
    AgentChanged,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalRejected,
    CleanedUp,
    McpChanged,
)
from coterie.orchestrator.cli.live.rows import NewsRow, clean_text
from coterie.orchestrator.cli.views.event_text import approval_text, event_level, event_text, outcome_text, reply_text
from coterie.orchestrator.cli.views.plain import CallArguments

_PLAIN = (ResultsCleared, Compacted, EpochBegan)
_BAD = (
    CleanedUp,
    Retrying,
    LayerFailed,
    McpChanged,
    Noticed,
    BreakerTripped,
    CacheBroke,
    WindowFilling,
    LineUnreadable,
)
"""Event types that the board lists in red, with the text of `event_text`; an `McpChanged` to connected is not red."""


@attrs.define(eq=False)
class NewsFeed:
    """Converter of events to news lines of the board; stores tool calls of each agent, to show their arguments."""

    _calls: dict[str, CallArguments] = attrs.field(factory=dict)
    _started: set[str] = attrs.field(factory=set)

    def has_started(self, agent: str) -> bool:
        """True after the start event of *agent*; messages before it are copied from a parent, so they are no news."""
        return agent in self._started

    def brief(self, agent: str, call: str, name: str) -> str:
        """Return tool call *call* of *agent* as text with its main argument, such as `Read src/a.py`."""
        return clean_text(self._calls.setdefault(agent, CallArguments()).brief(call, name))

    def to_news(self, observed: SessionEvent) -> NewsRow | None:
        """Convert an event to a news line; return None if the board does not list it, such as a piece of a reply."""
        found = self._text(observed)
        if found is None:
            return None
        text, is_bad = found
        agent = getattr(observed.event, "name", observed.agent) if observed.agent == "root" else observed.agent
        return NewsRow(at=observed.at, agent=clean_text(agent), text=clean_text(text), is_bad=is_bad)

    def _text(self, observed: SessionEvent) -> tuple[str, bool] | None:  # noqa: PLR0911 - one case for each type of event
        match observed.event:
            case RunStarted() as event:
                self._started.add(observed.agent)
                again = f", start {event.incarnation}" if event.incarnation > 1 else ""
                return f"started with {event.model}{again}", False
            case MessageRecorded(role="assistant") as message if self.has_started(observed.agent):
                self._calls.setdefault(observed.agent, CallArguments()).remember(message)
                words = reply_text(message)
                return (f"says: {words}", False) if words.strip() else None
            case ToolEnded() as event:
                return f"{self.brief(observed.agent, event.id, event.name)}: {outcome_text(event)}", event.is_error
            case Finished() as event:
                return f"finished: {event.reason}, ${Decimal(event.cost_usd):.4f}", event.error is not None
            case PermissionDecided(verdict="denied") as event:
                return event_text(event), True
            case AgentChanged() as event:
                return _change(event)
            case ProgressSummarized() as event:
                return event.text, False
            case ApprovalAsked() | ApprovalDecided() | ApprovalRejected() as event:
                return approval_text(event), isinstance(event, ApprovalRejected)
            case Event() as event if isinstance(event, (*_PLAIN, *_BAD)) or event_level(event) == "notice":
                return event_text(event), isinstance(event, _BAD) and getattr(event, "state", "") != "connected"
            case _:
                return None


def _change(event: AgentChanged) -> tuple[str, bool] | None:
    """Return the text of a state change, and True if it is a problem; None for `plan_pending`, or without a reason."""
    is_bad = event_level(event) == "problem" or event.state in ("failed", "killed")
    if event.state == "plan_pending" or not (event.what or is_bad):
        return None  # the root's approval event says so
    why = f": {event.what}" if event.what else ""
    return f"is {event.state.replace('_', ' ')}{why}", is_bad
