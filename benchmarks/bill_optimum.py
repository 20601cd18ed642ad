"""Lowest possible cost of requests: every prefix is written at most once, and read whenever it occurs again.

The optimum is computed from the recorded requests. Each block is priced separately, by the times of the requests that
contain everything up to this block: as plain input, or written for minutes or an hour and then read, with keepalive
calls where they cost less than another write. Markers are free and allowed at any place, so no client can do better.
"""

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import attrs
import msgspec

from coterie.agents.loop.model.catalog import MILLION, Price
from coterie.agents.loop.model.usage import Ttl
from coterie.scenarios.api_server.caching.token_count import count_block

LIVES: dict[Ttl, float] = {"5m": 300.0, "1h": 3_600.0}
"""In seconds."""


@attrs.frozen(kw_only=True)
class Sent:
    """One request as the server received it."""

    agent: str
    purpose: str
    at: float
    """Time of the server's clock."""
    body: bytes


@attrs.define(eq=False)
class _Node:
    """A block, with the prefix before it."""

    tokens: int
    uses: list[float] = attrs.field(factory=list)


def optimum(requests: Iterable[Sent], price: Price) -> Decimal:
    """Return the lowest cost in dollars of the input of *requests*, which are in order of arrival."""
    nodes: dict[bytes, _Node] = {}
    for request in requests:
        for key, tokens in _prefixes(request.body):
            nodes.setdefault(key, _Node(tokens)).uses.append(request.at)
    return sum((node.tokens * _least(node.uses, price) for node in nodes.values()), Decimal(0)) / MILLION


def input_tokens(body: bytes) -> int:
    """Tokens of the whole input of a request, as the server counts them."""
    return sum(tokens for _, tokens in _prefixes(body))


def _least(uses: Sequence[float], price: Price) -> Decimal:
    """Return the lowest price of a token that is sent at each of *uses*."""
    written: dict[Ttl, Decimal] = {"5m": price.write_5m, "1h": price.write_1h}
    best, kept = price.input, dict(written)
    for before, now in itertools.pairwise(uses):
        paid = min(best, *kept.values())
        best = paid + price.input
        for ttl, life in LIVES.items():
            reads = max(1, math.ceil((now - before) / life))
            kept[ttl] = min(kept[ttl] + reads * price.read, paid + written[ttl])
    return min(best, *kept.values())


def _prefixes(body: bytes) -> Iterator[tuple[bytes, int]]:
    """Return a key for each prefix of a request that ends with a block, with the tokens of that block."""
    request = msgspec.json.decode(body)
    digest = hashlib.blake2b(request["model"].encode(), digest_size=16)
    for place, block in _blocks(request):
        bare = {name: value for name, value in block.items() if name != "cache_control"}
        digest.update(place + msgspec.json.encode(bare))
        yield digest.digest(), count_block(bare)


def _blocks(request: dict[str, Any]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    for section in ("tools", "system"):
        for block in request.get(section, ()):
            yield section.encode(), block
    for number, message in enumerate(request["messages"]):
        for block in message["content"]:
            yield b"%d %s" % (number, message["role"].encode()), block
