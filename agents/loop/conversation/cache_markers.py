"""Positions of cache markers: at most four per request."""

import attrs

from coterie.agents.loop.conversation.prefix import SegmentSequence, prompt_length
from coterie.agents.loop.model.usage import Ttl

REACH = 20
"""Positions that the API looks back from a marker for an entry, the marker's own included."""


@attrs.frozen(kw_only=True)
class CacheTtls:
    """How long the cache entry at each marker lives.

    Making one raises `ValueError` when a later marker would outlive an earlier one: the API refuses that.
    """

    system: Ttl = "5m"
    context: Ttl = "5m"
    previous: Ttl = "5m"
    last: Ttl = "5m"

    @property
    def longest(self) -> Ttl:
        """The life of what lives longest."""
        return self.system

    def __attrs_post_init__(self) -> None:
        hours = [ttl == "1h" for ttl in (self.system, self.context, self.previous, self.last)]
        if hours != sorted(hours, reverse=True):
            raise ValueError("a marker of 1h cannot stand behind one of 5m")


FIVE_MINUTES = CacheTtls()


@attrs.frozen(kw_only=True)
class MarkerHistory:
    """What a conversation remembers of markers, as indexes of segments of its epoch."""

    previous: int | None = None
    """The last marker of the last request that was answered: a cache entry ends there."""
    shared: int | None = None
    """In a fork not yet answered: where the bytes it has in common with its siblings end."""


@attrs.frozen(kw_only=True)
class CacheMarker:
    """A marker on the segment at *index*."""

    index: int
    ttl: Ttl


def choose_markers(
    segments: SegmentSequence, marks: MarkerHistory, *, ttl: CacheTtls = FIVE_MINUTES, helper: bool = False
) -> tuple[CacheMarker, ...]:
    """The markers of one request, in order: system, first user context, previous end, new end.

    Where nothing was answered yet, the previous end is that of what others may begin with too: of a fork, all before
    its directive, and of a fresh agent, all before its task.

    With *helper* the request marks its parent's end and not its own: no one will ask for the same bytes
    again, so a write there would be paid for nothing.
    """
    prompt = prompt_length(segments)
    shared = None if helper else marks.shared
    is_out_of_reach = shared is not None and marks.previous is not None and shared - marks.previous >= REACH
    end, life = (marks.previous if shared is None else shared), ttl.previous
    if end is None and not helper:
        end, life = _before_task(segments, prompt), ttl.context
    places: list[tuple[int | None, Ttl]] = [
        (last_markable(segments, 0, prompt), ttl.system),
        # From the end of what siblings share, the parent's own end may be too far to be found.
        (marks.previous if is_out_of_reach else _first_context(segments, prompt), ttl.context),
        (end, life),
        (None if helper else last_markable(segments, prompt, len(segments)), ttl.last),
    ]
    chosen: dict[int, Ttl] = {}
    for index, lifetime in places:
        if index is not None:
            chosen.setdefault(index, lifetime)
    return _in_order(chosen)


def last_markable(segments: SegmentSequence, start: int, stop: int) -> int | None:
    """The last place in the range that may carry a marker: not thinking, not empty text."""
    return next((i for i in range(stop - 1, start - 1, -1) if segments[i].is_markable), None)


def _first_context(segments: SegmentSequence, prompt: int) -> int | None:
    indexes = range(prompt, len(segments))
    start = next((i for i in indexes if segments[i].role == "user"), len(segments))
    stop = next((i for i in indexes[start - prompt + 1 :] if segments[i].opens_message), len(segments))
    return last_markable(segments, start, stop)


def _before_task(segments: SegmentSequence, prompt: int) -> int | None:
    """In a conversation of one message, the last markable block before the one that ends it."""
    is_begun = all(not segments[index].opens_message for index in range(prompt + 1, len(segments)))
    return last_markable(segments, prompt, len(segments) - 1) if is_begun else None


def _in_order(chosen: dict[int, Ttl]) -> tuple[CacheMarker, ...]:
    markers: list[CacheMarker] = []
    for index, ttl in sorted(chosen.items()):
        # The previous end can stand before the first user context when the assistant spoke first.
        outlives = bool(markers) and markers[-1].ttl == "5m"
        markers.append(CacheMarker(index=index, ttl="5m" if outlives else ttl))
    return tuple(markers)


CACHE_LIFETIMES: dict[Ttl, float] = {"5m": 300.0, "1h": 3600.0}
"""Seconds for which the provider keeps an entry after its last use."""
