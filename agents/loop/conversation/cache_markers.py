"""Choice of the positions of cache markers, at most four per request."""

import attrs

from coterie.agents.loop.conversation.prefix import SegmentSequence, prompt_length
from coterie.agents.loop.model.usage import Ttl

REACH = 20
"""Number of blocks that the API searches backwards from a marker for a cache entry, the marked block included."""


@attrs.frozen(kw_only=True)
class CacheTtls:
    """Time to live of the cache entry at each marker.

    The constructor raises `ValueError` if a later marker would outlive an earlier one: the API rejects that.
    """

    system: Ttl = "5m"
    context: Ttl = "5m"
    previous: Ttl = "5m"
    last: Ttl = "5m"

    @property
    def longest(self) -> Ttl:
        """The longest time to live of all markers."""
        return self.system

    def __attrs_post_init__(self) -> None:
        hours = [ttl == "1h" for ttl in (self.system, self.context, self.previous, self.last)]
        if hours != sorted(hours, reverse=True):
            raise ValueError("a marker of 1h cannot follow one of 5m")


FIVE_MINUTES = CacheTtls()


@attrs.frozen(kw_only=True)
class MarkerHistory:
    """Positions of earlier markers of a conversation, as segment indexes of its current epoch."""

    previous: int | None = None
    """The last marker of the last answered request: a cache entry ends there."""
    shared: int | None = None
    """The last segment that a fork shares with its siblings; None after the fork's first reply."""


@attrs.frozen(kw_only=True)
class CacheMarker:
    """A cache marker on the segment at *index*."""

    index: int
    ttl: Ttl


def choose_markers(
    segments: SegmentSequence, marks: MarkerHistory, *, ttl: CacheTtls = FIVE_MINUTES, helper: bool = False
) -> tuple[CacheMarker, ...]:
    """Choose the markers of one request, in order: system, first user context, previous end, new end.

    Before the first reply, the previous end is the end of the part that other agents may share: for a fork, everything
    before its directive; for a new agent, everything before its task.

    With *helper* the request marks the end of its parent's conversation instead of its own, because no later request
    reads a cache entry at the helper's end.
    """
    prompt = prompt_length(segments)
    shared = None if helper else marks.shared
    is_out_of_reach = shared is not None and marks.previous is not None and shared - marks.previous >= REACH
    end, life = (marks.previous if shared is None else shared), ttl.previous
    if end is None and not helper:
        is_begun = all(not segments[index].opens_message for index in range(prompt + 1, len(segments)))
        # The last block is the task, if the conversation has only one message.
        end, life = last_markable(segments, prompt, len(segments) - 1) if is_begun else None, ttl.context
    places: list[tuple[int | None, Ttl]] = [
        (last_markable(segments, 0, prompt), ttl.system),
        # Searching from the end of the shared part, the API may not reach the parent's last entry.
        (marks.previous if is_out_of_reach else _first_context(segments, prompt), ttl.context),
        (end, life),
        (None if helper else last_markable(segments, prompt, len(segments)), ttl.last),
    ]
    chosen: dict[int, Ttl] = {}
    for index, lifetime in places:
        if index is not None:
            chosen.setdefault(index, lifetime)
    markers: list[CacheMarker] = []
    for index, lifetime in sorted(chosen.items()):
        # The previous end can be before the first user context, if the first message is the assistant's.
        outlives = bool(markers) and markers[-1].ttl == "5m"
        markers.append(CacheMarker(index=index, ttl="5m" if outlives else lifetime))
    return tuple(markers)


def last_markable(segments: SegmentSequence, start: int, stop: int) -> int | None:
    """Return the last index in the range that may carry a marker: no thinking, no empty text."""
    return next((i for i in range(stop - 1, start - 1, -1) if segments[i].is_markable), None)


def _first_context(segments: SegmentSequence, prompt: int) -> int | None:
    indexes = range(prompt, len(segments))
    start = next((i for i in indexes if segments[i].role == "user"), len(segments))
    stop = next((i for i in indexes[start - prompt + 1 :] if segments[i].opens_message), len(segments))
    return last_markable(segments, start, stop)


CACHE_LIFETIMES: dict[Ttl, float] = {"5m": 300.0, "1h": 3600.0}
"""Seconds for which the provider keeps a cache entry after its last use."""
