"""Events of an agent's context, in words for people: how full it is, what leaves it, and what the cache makes of it."""

from coterie.agents.events import (
    BreakerTripped,
    CacheBroke,
    Compacted,
    NotesUpdated,
    ResultsCleared,
    ResultsStored,
    WindowFilling,
)

ContextEvent = ResultsStored | ResultsCleared | NotesUpdated | Compacted | BreakerTripped | CacheBroke | WindowFilling


def context_sentence(event: ContextEvent) -> str:  # noqa: PLR0911 - one line for each kind of event
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
