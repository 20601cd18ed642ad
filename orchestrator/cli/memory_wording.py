"""Events of the memory, in words for people."""

from decimal import Decimal

from coterie.agents.events import Dreamed, Event, MemoryChanged, MemoryExtracted, Recalled

MemoryEvent = MemoryChanged | Recalled | MemoryExtracted | Dreamed


def memory_sentence(event: MemoryEvent) -> str:
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


def is_news(event: Event) -> bool:
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
