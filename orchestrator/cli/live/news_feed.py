"""News feed of the board: events worth a line, and their text."""

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
from coterie.orchestrator.cli.views.event_text import event_text, is_problem, outcome_text, reply_text
from coterie.orchestrator.cli.views.layer_event_text import approval_text, is_memory_notice
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
"""Both are told in the sentence that the log has for them."""


@attrs.define(eq=False)
class NewsFeed:
    """Words of news; knows the calls of each agent by their ids."""

    _calls: dict[str, CallArguments] = attrs.field(factory=dict)
    _started: set[str] = attrs.field(factory=set)

    def has_started(self, agent: str) -> bool:
        """Whether what stands in its transcript from now on is its own; a fork's begins with its parent's words."""
        return agent in self._started

    def brief(self, agent: str, call: str, name: str) -> str:
        """What a call of *agent* is about."""
        return clean_text(self._calls.setdefault(agent, CallArguments()).brief(call, name))

    def to_news(self, observed: SessionEvent) -> NewsRow | None:
        """The news in an event, if there is one."""
        found = self._text(observed)
        if found is None:
            return None
        text, is_bad = found
        agent = getattr(observed.event, "name", observed.agent) if observed.agent == "root" else observed.agent
        return NewsRow(at=observed.at, agent=clean_text(agent), text=clean_text(text), is_bad=is_bad)

    def _text(self, observed: SessionEvent) -> tuple[str, bool] | None:  # noqa: PLR0911 - one for each kind of event
        match observed.event:
            case RunStarted() as event:
                self._started.add(observed.agent)
                again = f", start {event.incarnation}" if event.incarnation > 1 else ""
                return f"starts with {event.model}{again}", False
            case MessageRecorded(role="assistant") as message if self.has_started(observed.agent):
                self._calls.setdefault(observed.agent, CallArguments()).remember(message)
                words = reply_text(message)
                return (f"says: {words}", False) if words.strip() else None
            case ToolEnded() as event:
                return f"{self.brief(observed.agent, event.id, event.name)}: {outcome_text(event)}", event.is_error
            case Finished() as event:
                return f"has finished: {event.reason}, ${Decimal(event.cost_usd):.4f}", event.error is not None
            case PermissionDecided(verdict="denied") as event:
                return event_text(event), True
            case AgentChanged() as event:
                return _change(event)
            case ProgressSummarized() as event:
                return f"is at: {event.text}", False
            case ApprovalAsked() | ApprovalDecided() | ApprovalRejected() as event:
                return approval_text(event), isinstance(event, ApprovalRejected)
            case Event() as event if isinstance(event, (*_PLAIN, *_BAD)) or is_memory_notice(event):
                return event_text(event), isinstance(event, _BAD) and getattr(event, "state", "") != "connected"
            case _:
                return None


def _change(event: AgentChanged) -> tuple[str, bool] | None:
    """What there is to say of another state that the agent does not say itself."""
    is_bad = is_problem(event) or event.state in ("failed", "killed")
    if event.state == "plan_pending" or not (event.what or is_bad):
        return None  # that it asks is told by the root
    why = f": {event.what}" if event.what else ""
    return f"is {event.state.replace('_', ' ')}{why}", is_bad
