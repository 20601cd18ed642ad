"""Which events of a session are worth finding again, and what each of them is about."""

from collections.abc import Iterable, Iterator

from coterie.agents.events import (
    AgentChanged,
    AnswerRefused,
    BreakerTripped,
    CacheBroke,
    CleanedUp,
    Compacted,
    Decided,
    Dreamed,
    Event,
    Finished,
    HookRan,
    LayerFailed,
    McpChanged,
    NotesUpdated,
    Noticed,
    ResultsCleared,
    ResultsStored,
    Retrying,
    ToolEnded,
    WindowFilling,
)
from coterie.orchestrator.cli.wording import is_trouble, sentence
from coterie.orchestrator.events.observed import LineUnreadable, Observed
from coterie.orchestrator.reporting.facts import Letter, Notable, Topic
from coterie.orchestrator.reporting.scale import span_text

ALLOWED = "allowed"
"""The verdict over a call that nobody needs to look at."""


def notable(observed: Observed) -> Notable | None:
    """*observed* as somebody looks for it; None if it is what happens all the time."""
    if observed.event is None or (topic := _topic(observed.event)) is None:
        return None
    return Notable(at=observed.at, agent=_whose(observed), topic=topic, text=_text(observed.event))


def dead_notables(letters: Iterable[Letter]) -> Iterator[Notable]:
    """Dead letters, which are in no event log."""
    for letter in letters:
        if letter.state == "dead":
            text = f"a letter of {letter.sender} to {letter.recipient} is dead ({letter.reason}): {letter.gist}"
            yield Notable(at=letter.at, agent=letter.recipient, topic="mail", text=text)


def _topic(event: Event) -> Topic | None:  # noqa: C901, PLR0911, PLR0912 - one line for each topic
    match event:
        case AgentChanged():
            return "agents" if is_trouble(event) or event.state in ("failed", "killed") else None
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
        case Decided():
            return None if event.verdict == ALLOWED else "permissions"
        case HookRan():
            return {"failed": "errors", "block": "permissions", "stop": "permissions"}.get(event.decision)  # type: ignore[return-value]  # each is a topic
        case Compacted() | ResultsCleared() | ResultsStored() | NotesUpdated() | WindowFilling():
            return "context"
        case CacheBroke():
            return "cache"
        case AnswerRefused():
            return "approvals"
        case LineUnreadable():
            return "files"
        case _:
            return None


def _whose(observed: Observed) -> str:
    return observed.event.name if isinstance(observed.event, AgentChanged) else observed.agent


def _text(event: Event) -> str:
    match event:
        case AnswerRefused():
            return f"an answer of {event.by} to {event.id} does not count: {event.reason}"
        case ToolEnded():
            return f"{event.name} failed after {span_text(event.seconds)}: {event.reason or 'nobody said why'}"
        case _:
            return sentence(event)
