"""Selection of the notable events of a session for the report, such as errors and retries, each with a topic."""

from collections.abc import Iterable, Iterator

from coterie.agents.events.agent_events import Event, Finished, HookRan, Noticed, PermissionDecided, Retrying, ToolEnded
from coterie.agents.events.event_reader import LineUnreadable, SessionEvent
from coterie.agents.events.layer_events import (
    BreakerTripped,
    CacheBroke,
    Compacted,
    Dreamed,
    LayerFailed,
    NotesUpdated,
    ResultsCleared,
    ResultsStored,
    WindowFilling,
)
from coterie.agents.events.root_events import AgentChanged, ApprovalRejected, CleanedUp, McpChanged
from coterie.orchestrator.cli.views.event_text import event_level, event_text
from coterie.orchestrator.report.report_data import MailItem, NotableEvent, Topic
from coterie.orchestrator.report.time_scale import span_text

ALLOWED = "allowed"
"""Verdict of permission decisions that are routine, so that the report does not list them."""


def to_notable_event(observed: SessionEvent) -> NotableEvent | None:
    """Convert an event to an entry of the report's list of notable events; return None for a routine event."""
    if observed.event is None or (topic := _topic(observed.event)) is None:
        return None
    return NotableEvent(at=observed.at, agent=_agent_of(observed), topic=topic, text=_text(observed.event))


def dead_letter_events(letters: Iterable[MailItem]) -> Iterator[NotableEvent]:
    """Yield a notable event of topic "mail" for each dead letter (undeliverable message) in *letters*."""
    for letter in letters:
        if letter.state == "dead":
            text = f"message of {letter.sender} to {letter.recipient} not delivered ({letter.reason}): {letter.gist}"
            yield NotableEvent(at=letter.at, agent=letter.recipient, topic="mail", text=text)


def _topic(event: Event) -> Topic | None:  # noqa: C901, PLR0911, PLR0912 - one case for each topic
    match event:
        case AgentChanged():
            return "agents" if event_level(event) == "problem" or event.state in ("failed", "killed") else None
        case ToolEnded():
            return "errors" if event.is_error else None
        case LayerFailed() | Noticed() | BreakerTripped():
            return "errors"
        case McpChanged():
            return None if event.state == "connected" else "errors"
        case Finished():
            return "errors" if event.error else None
        case CleanedUp():
            return "agents"
        case Dreamed():
            return "errors" if event.state == "failed" else None
        case Retrying():
            return "retries"
        case PermissionDecided():
            return None if event.verdict == ALLOWED else "permissions"
        case HookRan():
            return {"failed": "errors", "block": "permissions", "stop": "permissions"}.get(event.decision)  # type: ignore[return-value]  # each is a topic
        case Compacted() | ResultsCleared() | ResultsStored() | NotesUpdated() | WindowFilling():
            return "context"
        case CacheBroke():
            return "cache"
        case ApprovalRejected():
            return "approvals"
        case LineUnreadable():
            return "files"
        case _:
            return None


def _agent_of(observed: SessionEvent) -> str:
    return observed.event.name if isinstance(observed.event, AgentChanged) else observed.agent


def _text(event: Event) -> str:
    match event:
        case ApprovalRejected():
            return f"answer by {event.by} to {event.id} was ignored: {event.reason}"
        case ToolEnded():
            return f"{event.name} failed after {span_text(event.seconds)}: {event.reason or 'no reason given'}"
        case _:
            return event_text(event)
