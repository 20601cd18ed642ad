"""Choice of the cache markers of a request: up to four blocks with `cache_control`, each the end of a cache entry."""

import attrs

from coterie.agents.loop.conversation.prefix import SegmentSequence, prompt_length
from coterie.agents.loop.model.usage import Ttl

REACH = 20
"""Number of blocks, the marked block included, in which the API looks for a cache entry, backwards from a marker."""


@attrs.frozen(kw_only=True)
class CacheTtls:
    """Times to live of the prompt cache entries at the four cache markers (`cache_control`) of a request, in order.

    The constructor raises `ValueError` if a later marker has a longer one than an earlier marker: the API rejects that.
    """

    system: Ttl = "5m"
    context: Ttl = "5m"
    previous: Ttl = "5m"
    last: Ttl = "5m"

    @property
    def longest(self) -> Ttl:
        """Longest of the four times to live: that of the first marker, because no later one may be longer."""
        return self.system

    def __attrs_post_init__(self) -> None:
        hours = [ttl == "1h" for ttl in (self.system, self.context, self.previous, self.last)]
        if hours != sorted(hours, reverse=True):
            raise ValueError("a cache marker of 1h follows one of 5m; give the earlier marker 1h, or the later one 5m")


FIVE_MINUTES = CacheTtls()


@attrs.frozen(kw_only=True)
class MarkerHistory:
    """Positions of earlier cache markers (`cache_control`) in a conversation, as indexes of its segments (blocks)."""

    previous: int | None = None
    """Index of the last block known to end a cache entry, mostly that of the last answered request; None if unknown."""
    shared: int | None = None
    """Until a fork (copy of its parent) gets a reply: index of the last markable block before its task; else None."""


@attrs.frozen(kw_only=True)
class CacheMarker:
    """A cache marker (`cache_control` of lifetime *ttl*) to put on the segment (block) at *index* of a conversation."""

    index: int
    ttl: Ttl


def choose_markers(
    segments: SegmentSequence, marks: MarkerHistory, *, ttl: CacheTtls = FIVE_MINUTES, helper: bool = False
) -> tuple[CacheMarker, ...]:
    """Return the cache markers (`cache_control`) of one request, at the ends of up to four parts that the API caches.

    The parts end with the system prompt, the first user message, the last answered request, and the whole request.
    Before the first reply, the third part is the one that other agents may share: in a fork (agent that continues its
    parent's conversation), all before its directive (task); in a new agent, all before its task. A *helper* (short fork
    in the background) gets no marker at its own end, because no later request reads that entry.
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
    """Return the last index from *start* to before *stop* whose segment may carry `cache_control`; None without one."""
    return next((i for i in range(stop - 1, start - 1, -1) if segments[i].is_markable), None)


def _first_context(segments: SegmentSequence, prompt: int) -> int | None:
    indexes = range(prompt, len(segments))
    start = next((i for i in indexes if segments[i].role == "user"), len(segments))
    stop = next((i for i in indexes[start - prompt + 1 :] if segments[i].opens_message), len(segments))
    return last_markable(segments, start, stop)


CACHE_LIFETIMES: dict[Ttl, float] = {"5m": 300.0, "1h": 3600.0}
"""Seconds for which the API keeps a prompt cache entry after its last use, by time to live."""
