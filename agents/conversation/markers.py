"""Where cache markers go: at most four places, chosen so that the next request hits exactly."""

from typing import Literal

import attrs

from coterie.agents.conversation.prefix import Segments, prompt_length

Ttl = Literal["5m", "1h"]


@attrs.frozen(kw_only=True)
class Lifetimes:
    """How long the cache entry at each marker lives.

    Making one raises `ValueError` when a later marker would outlive an earlier one: the API refuses that.
    """

    system: Ttl = "5m"
    context: Ttl = "5m"
    previous: Ttl = "5m"
    last: Ttl = "5m"

    def __attrs_post_init__(self) -> None:
        hours = [ttl == "1h" for ttl in (self.system, self.context, self.previous, self.last)]
        if hours != sorted(hours, reverse=True):
            raise ValueError("a marker of 1h cannot stand behind one of 5m")


FIVE_MINUTES = Lifetimes()


@attrs.frozen(kw_only=True)
class Marks:
    """What a conversation remembers of markers, as indexes of segments of its epoch."""

    previous: int | None = None
    """The last marker of the last request that was answered: a cache entry ends there."""
    shared: int | None = None
    """In a fork not yet answered: where the bytes it has in common with its siblings end."""


@attrs.frozen(kw_only=True)
class Marker:
    """A marker on the segment at *index*."""

    index: int
    ttl: Ttl


def choose_markers(
    segments: Segments, marks: Marks, *, ttl: Lifetimes = FIVE_MINUTES, helper: bool = False
) -> tuple[Marker, ...]:
    """The markers of one request, in order: system, first user context, previous end, new end.

    With *helper* the request marks its parent's end and not its own: no one will ask for the same bytes
    again, so a write there would be paid for nothing.
    """
    prompt = prompt_length(segments)
    shared = None if helper else marks.shared
    places: list[tuple[int | None, Ttl]] = [
        (last_markable(segments, 0, prompt), ttl.system),
        (_first_context(segments, prompt), ttl.context),
        (marks.previous if shared is None else shared, ttl.previous),
        (None if helper else last_markable(segments, prompt, len(segments)), ttl.last),
    ]
    chosen: dict[int, Ttl] = {}
    for index, life in places:
        if index is not None:
            chosen.setdefault(index, life)
    return _in_order(chosen)


def last_markable(segments: Segments, start: int, stop: int) -> int | None:
    """The last place in the range that may carry a marker: not thinking, not empty text."""
    return next((i for i in range(stop - 1, start - 1, -1) if segments[i].is_markable), None)


def _first_context(segments: Segments, prompt: int) -> int | None:
    indexes = range(prompt, len(segments))
    start = next((i for i in indexes if segments[i].role == "user"), len(segments))
    stop = next((i for i in indexes[start - prompt + 1 :] if segments[i].opens_message), len(segments))
    return last_markable(segments, start, stop)


def _in_order(chosen: dict[int, Ttl]) -> tuple[Marker, ...]:
    markers: list[Marker] = []
    for index, ttl in sorted(chosen.items()):
        # The previous end can stand before the first user context when the assistant spoke first.
        outlives = bool(markers) and markers[-1].ttl == "5m"
        markers.append(Marker(index=index, ttl="5m" if outlives else ttl))
    return tuple(markers)
