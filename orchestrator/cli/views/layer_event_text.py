"""Text of approval, context and memory events for people."""

from decimal import Decimal

from coterie.agents.events.agent_events import Event
from coterie.agents.events.layer_events import (
    BreakerTripped,
    CacheBroke,
    Compacted,
    Dreamed,
    MemoryChanged,
    MemoryExtracted,
    NotesUpdated,
    Recalled,
    ResultsCleared,
    ResultsStored,
    WindowFilling,
)
from coterie.agents.events.root_events import ApprovalAsked, ApprovalDecided, ApprovalRejected
from coterie.agents.permissions.plan_approval import HUMAN, LEAD, RULE

ApprovalEvent = ApprovalAsked | ApprovalDecided | ApprovalRejected


def approval_text(event: ApprovalEvent) -> str:
    """What was asked for, or decided; whoever asks is named beside it."""
    match event:
        case ApprovalAsked():
            wish = "permission" if event.what == "permission" else "approval of its plan"
            return f"asks {_decider_text(event.by)} for {wish}, {event.id}: {event.subject}"
        case ApprovalDecided(verdict="withdrawn"):
            return f"{event.id} is withdrawn: {event.feedback}"
        case ApprovalDecided():
            feedback = f": {event.feedback}" if event.feedback else ""
            return f"{event.id} is {event.verdict} by {_decider_text(event.by)}{feedback}"
        case ApprovalRejected():
            return f"an answer of {_decider_text(event.by)} to {event.id} does not count: {event.reason}"


def _decider_text(by: str) -> str:
    """Who decides, as one says it to the user."""
    return {HUMAN: "you", LEAD: "the lead", RULE: "the rule"}.get(by, by)


ContextEvent = ResultsStored | ResultsCleared | NotesUpdated | Compacted | BreakerTripped | CacheBroke | WindowFilling


def context_text(event: ContextEvent) -> str:  # noqa: PLR0911 - one line for each kind of event
    """An event of the context in one sentence."""
    match event:
        case ResultsStored():
            sizes = f"{event.characters_before:,} characters became {event.characters_after:,}"
            return f"{len(event.paths)} long results are on disk: {sizes}"
        case ResultsCleared():
            sizes = f"{event.tokens_before:,} tokens became {event.tokens_after:,}"
            return f"{event.results} old results left the context by {event.mechanism}: {sizes}"
        case NotesUpdated():
            trimmed = f"; trimmed: {', '.join(event.trimmed)}" if event.trimmed else ""
            sizes = f"{event.tokens:,} tokens after {_counted(event.edits, 'edit')}"
            return f"the session notes are up to date: {sizes}, {event.seconds:.1f} s, ${event.cost_usd}{trimmed}"
        case Compacted():
            return _compaction(event)
        case BreakerTripped():
            failed = f"{_counted(event.failures, 'summary', 'summaries')} failed in a row"
            return f"{failed}: {event.reason}; from now on the oldest messages leave by rule"
        case CacheBroke():
            sizes = f"{event.read_now:,} tokens read, {event.read_before:,} before"
            return f"the cache was missed, by {event.cause}: {event.detail}; {sizes}"
        case WindowFilling():
            return f"the context holds {event.tokens:,} tokens, over the {event.threshold:,} of {event.level!r}"


def _compaction(event: Compacted) -> str:
    sizes = f"{event.tokens_before:,} tokens became {event.tokens_after:,}"
    left = f"{_counted(event.left, 'message')} left, {event.kept} stayed"
    words = f"with {_counted(event.words, 'message')} of the user word for word"
    gone = f"; {_counted(event.dropped_count, 'name')} of the last turns gone" if event.dropped_count else ""
    skills = f"; skills restored: {', '.join(event.skills)}" if event.skills else ""
    why = "".join(f"; not by {way}: {reason}" for way, reason in event.passed_over.items())
    return f"compacted by {event.by} ({event.trigger}): {sizes}; {left}, {words}{skills}{gone}; ${event.cost_usd}{why}"


def _counted(count: int, noun: str, nouns: str | None = None) -> str:
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


MemoryEvent = MemoryChanged | Recalled | MemoryExtracted | Dreamed


def memory_text(event: MemoryEvent) -> str:
    """An event of the memory in one sentence."""
    match event:
        case MemoryChanged():
            return f"memory {event.path} was {event.action} by {_WRITERS[event.by]}; change {event.change}"
        case Recalled():
            chosen = ", ".join(event.chosen) or "none"
            sizes = f"of {event.candidates:,} memories, {event.bytes:,} bytes"
            return f"recalled by {event.by}: {chosen} {sizes}{_cost(event.cost_usd)}"
        case MemoryExtracted():
            return _extraction(event)
        case Dreamed():
            return _dream(event)


def is_memory_notice(event: Event) -> bool:
    """Whether it is an event of the memory that the user should hear of without asking."""
    match event:
        case MemoryExtracted():
            return bool(event.saved)
        case Dreamed():
            return event.state in ("completed", "failed", "killed")
        case _:
            return False


_WRITERS = {"agent": "the agent", "extraction": "extraction", "dream": "a dream", "user": "the user"}


def _extraction(event: MemoryExtracted) -> str:
    if event.skipped is not None:
        return f"no memories were looked for: {event.skipped}"
    if not event.saved:
        return f"nothing new was worth remembering{_cost(event.cost_usd)}"
    return f"remembered: {', '.join(event.saved)}{_cost(event.cost_usd)}"


def _dream(event: Dreamed) -> str:
    if event.state in ("starting", "updating"):
        return "a dream has begun" if event.state == "starting" else "the dream has begun to write"
    if event.state != "completed":
        end = "failed" if event.state == "failed" else "been ended"
        return f"the dream has {end}: {event.reason or 'no reason given'}"
    parts = [f"{event.applied} applied", f"{event.waiting} waiting for you", f"{event.dropped} dropped"]
    shown = f"; `coterie memory dream --list` shows {event.change}" if event.change is not None else ""
    return f"dreamed: of its changes {', '.join(parts)}{_cost(event.cost_usd)}{shown}"


def _cost(dollars: str) -> str:
    return f", ${dollars}" if Decimal(dollars) else ""
