"""Variants of one request: positions of cache markers, and strings in place of blocks."""

import json
from typing import Any

import attrs
from hypothesis import strategies as st

Request = dict[str, Any]

THINKING = {"type": "thinking", "thinking": "hm " * 200, "signature": "c2ln"}
LIMIT = 4
PLACES = ((), (-1,), (-1,), (1,), (1, -1), (3, -1), (1, 3, 4, -1), (3, -2, -1), (-20,), (-21, -1))
"""Common choices: the ends of tools, system and first message, and the last blocks."""


@attrs.frozen(kw_only=True)
class RequestVariant:
    """Form of a request."""

    places: tuple[int, ...]
    """Indices of the marked blocks among those that can be marked, counted from either end."""
    hours: int
    """Number of markers with a lifetime of an hour: the first ones."""
    is_automatic: bool
    is_plain: bool
    """True if a lone text block is sent as a string, without white space."""
    is_prefilled: bool
    """True if the request ends with thinking of the assistant, which cannot be marked."""

    def to_bytes(self, request: Request) -> bytes:
        """Apply the variant to *request* in place and return its body; markers are only where the API allows them."""
        if self.is_prefilled:
            request["messages"].append({"role": "assistant", "content": [THINKING]})
        self._mark(request)
        if self.is_plain:
            _write_plainly(request)
        return json.dumps(request, separators=(",", ":") if self.is_plain else None).encode()

    def _mark(self, request: Request) -> None:
        blocks = _markable(request)
        last = len(blocks) - 1
        places = sorted({min(place, last) if place >= 0 else max(0, last + 1 + place) for place in self.places})
        for number, place in enumerate(places):
            blocks[place]["cache_control"] = _control(is_hour=number < self.hours)
        if self.is_automatic and (at_end := blocks[-1].get("cache_control")):
            request["cache_control"] = at_end
        elif self.is_automatic and len(places) < LIMIT:
            request["cache_control"] = _control(is_hour=self.hours > len(places))


WRITINGS: st.SearchStrategy[RequestVariant] = st.builds(
    RequestVariant,
    places=st.sampled_from(PLACES) | st.lists(st.integers(-24, 4), max_size=LIMIT).map(tuple),
    hours=st.integers(0, LIMIT + 1),
    is_automatic=st.booleans(),
    is_plain=st.booleans(),
    is_prefilled=st.sampled_from([False, False, False, False, True]),
)


def _markable(request: Request) -> list[dict[str, Any]]:
    tools = [tool for tool in request.get("tools", []) if not tool.get("defer_loading")]
    spoken = [block for message in request["messages"] for block in message["content"]]
    return [
        block
        for block in (*tools, *request.get("system", []), *spoken)
        if block.get("text") != "" and block.get("type") not in ("thinking", "redacted_thinking")
    ]


def _control(*, is_hour: bool) -> dict[str, str]:
    return {"type": "ephemeral", "ttl": "1h"} if is_hour else {"type": "ephemeral"}


def _write_plainly(request: Request) -> None:
    results = [b for message in request["messages"] for b in message["content"] if b["type"] == "tool_result"]
    holders = [(request, "system"), *((holder, "content") for holder in [*results, *request["messages"]])]
    for holder, name in holders:
        blocks = holder.get(name, [])
        if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
            holder[name] = blocks[0]["text"]
