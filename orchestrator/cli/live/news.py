"""Which events are news on the board, and in which words."""

from decimal import Decimal

import attrs

from coterie.agents.events import (
    AgentChanged,
    AnswerRefused,
    ApprovalAsked,
    ApprovalDecided,
    BreakerTripped,
    CacheBroke,
    CleanedUp,
    Compacted,
    Decided,
    Event,
    Finished,
    LayerFailed,
    McpChanged,
    Noticed,
    Progress,
    ResultsCleared,
    Retrying,
    Started,
    ToolEnded,
    WindowFilling,
)
from coterie.orchestrator.cli.approval_wording import approval_sentence
from coterie.orchestrator.cli.live.rows import News, clean
from coterie.orchestrator.cli.memory_wording import is_news
from coterie.orchestrator.cli.views.calls import Calls
from coterie.orchestrator.cli.wording import is_trouble, outcome_text, said, sentence
from coterie.orchestrator.events.observed import EpochBegan, LineUnreadable, MessageRecorded, Observed

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
class Reporter:
    """Words of news; knows the calls of each agent by their ids."""

    _calls: dict[str, Calls] = attrs.field(factory=dict)
    _started: set[str] = attrs.field(factory=set)

    def has_started(self, agent: str) -> bool:
        """Whether what stands in its transcript from now on is its own; a fork's begins with its parent's words."""
        return agent in self._started

    def brief(self, agent: str, call: str, name: str) -> str:
        """What a call of *agent* is about."""
        return clean(self._calls.setdefault(agent, Calls()).brief(call, name))

    def report(self, observed: Observed) -> News | None:
        """The news in an event, if there is one."""
        found = self._words(observed)
        if found is None:
            return None
        text, is_bad = found
        agent = getattr(observed.event, "name", observed.agent) if observed.agent == "root" else observed.agent
        return News(at=observed.at, agent=clean(agent), text=clean(text), is_bad=is_bad)

    def _words(self, observed: Observed) -> tuple[str, bool] | None:  # noqa: PLR0911 - one for each kind of event
        match observed.event:
            case Started() as event:
                self._started.add(observed.agent)
                again = f", start {event.incarnation}" if event.incarnation > 1 else ""
                return f"starts with {event.model}{again}", False
            case MessageRecorded(role="assistant") as message if self.has_started(observed.agent):
                self._calls.setdefault(observed.agent, Calls()).note(message)
                words = said(message)
                return (f"says: {words}", False) if words.strip() else None
            case ToolEnded() as event:
                return f"{self.brief(observed.agent, event.id, event.name)}: {outcome_text(event)}", event.is_error
            case Finished() as event:
                return f"has finished: {event.reason}, ${Decimal(event.cost_usd):.4f}", event.error is not None
            case Decided(verdict="denied") as event:
                return sentence(event), True
            case AgentChanged() as event:
                return _change(event)
            case Progress() as event:
                return f"is at: {event.text}", False
            case ApprovalAsked() | ApprovalDecided() | AnswerRefused() as event:
                return approval_sentence(event), isinstance(event, AnswerRefused)
            case Event() as event if isinstance(event, (*_PLAIN, *_BAD)) or is_news(event):
                return sentence(event), isinstance(event, _BAD) and getattr(event, "state", "") != "connected"
            case _:
                return None


def _change(event: AgentChanged) -> tuple[str, bool] | None:
    """What there is to say of another state that the agent does not say itself."""
    is_bad = is_trouble(event) or event.state in ("failed", "killed")
    if event.state == "plan_pending" or not (event.what or is_bad):
        return None  # that it asks is told by the root
    why = f": {event.what}" if event.what else ""
    return f"is {event.state.replace('_', ' ')}{why}", is_bad
