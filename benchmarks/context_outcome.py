"""Outcome of a session: its cost by the server's log, and the content of its last request."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import pairwise
from statistics import median
from typing import Any

import attrs
import msgspec

from benchmarks.sample_history import MODEL
from coterie.agents.events.agent_events import Event, ToolEnded
from coterie.agents.events.layer_events import CacheBroke, Compacted, LayerFailed, NotesUpdated, ResultsCleared
from coterie.agents.loop.agent import Agent
from coterie.agents.loop.model.catalog import MILLION, known_models
from coterie.agents.loop.model.reply import Reply
from coterie.scenarios.api_server.caching.token_count import BYTES_PER_TOKEN, TOOL_BLOCK

EARLY = slice(9, 109)
LATE = slice(-100, None)
"""Turns whose CPU time is compared."""


class Compaction(msgspec.Struct, frozen=True):
    """One of these turns."""

    by: str
    tokens: int
    """Turns before it."""
    seconds: float


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Results that remain after the files are deleted."""

    strategy: str
    turns: int
    ended: list[str]
    """Reason why the run ended early."""
    refused: int
    """Requests that the server rejected as too long."""
    words: int
    """User texts."""
    lost_words: int
    """User texts that are no longer in the last request verbatim."""
    results: int
    """Tokens of all tool results, before any layer."""
    largest: int
    """Tokens of the largest prompt."""
    sent: int
    """Tokens of the prompts of all turns."""
    read: int
    """Prompt tokens read from the cache."""
    helpers: dict[str, Decimal]
    """Dollars by purpose."""
    rewrites: Decimal
    """Dollars for cache writes of turns after a new epoch, or after the API had cleared."""
    turns_else: Decimal
    """Dollars for all other input and output of turns."""
    epochs: int
    breaks: list[str]
    """Unexpected cache misses."""
    expired: int
    updates: int
    """Updates of the notes."""
    compactions: list[Compaction]
    failures: list[str]
    """Failures of layers."""
    cpu: list[float]
    """Client CPU seconds of each turn without a compaction."""
    again: list[float] = []
    """The same for the first turns of a session that started after this one."""

    @property
    def dollars(self) -> Decimal:
        """Total dollars."""
        return self.turns_else + self.rewrites + sum(self.helpers.values())

    @property
    def late(self) -> float:
        """CPU time of a late turn."""
        return median(self.cpu[LATE])

    @property
    def early(self) -> float:
        """CPU time of an early turn, measured minutes before, when the machine may have had another speed."""
        return median(self.cpu[EARLY])

    @property
    def early_again(self) -> float:
        """CPU time of an early turn, measured directly after the late ones."""
        return median(self.again[EARLY])


@attrs.define(eq=False)
class Observed:
    """Observer of an agent."""

    agent: Agent
    ended: list[str] = attrs.field(factory=list)
    events: list[tuple[int, Event]] = attrs.field(factory=list)
    """Events, each with the number of the next model call."""
    replied: list[tuple[int, int, float]] = attrs.field(factory=list)
    """Turn, epoch, and client CPU time so far."""

    def __attrs_post_init__(self) -> None:
        self.agent.emit = lambda event: self.events.append((self.agent.turn, event))

    def on_reply(self, agent: Agent, _reply: Reply) -> None:
        """Record the time and epoch of a reply."""
        self.replied.append((agent.turn - 1, agent.conversation.epoch, time.process_time()))

    @property
    def renewals(self) -> set[int]:
        """Turns that started an epoch, except the first."""
        return {turn for (_, before, _), (turn, epoch, _) in pairwise(self.replied) if epoch != before}

    @property
    def clearings(self) -> set[int]:
        """Turns whose prompts were shortened by the API."""
        cleared = ((turn, event) for turn, event in self.events if isinstance(event, ResultsCleared))
        return {turn - 1 for turn, event in cleared if event.mechanism == "api"}

    def of(self, kind: type[Event]) -> Iterator[Any]:
        """Return the events of one kind."""
        return (event for _, event in self.events if isinstance(event, kind))


def outcome_of(strategy: str, seen: Observed, requests: Sequence[Mapping[str, Any]]) -> Outcome:
    """Combine *seen* and the server's log."""
    answered = [entry for entry in requests if entry["status"] == 200]
    turns = [entry for entry in answered if entry["purpose"] == "turn"]
    rewritten = seen.renewals | seen.clearings
    rewrites = sum((_written(entry) for entry in turns if entry["turn"] in rewritten), Decimal(0))
    purposes = {entry["purpose"] for entry in answered} - {"turn"}
    breaks = list(seen.of(CacheBroke))
    return Outcome(
        strategy=strategy,
        turns=len(turns),
        ended=seen.ended,
        refused=len(requests) - len(answered),
        words=len(seen.agent.user_texts),
        lost_words=len(_missing_user_texts(seen.agent)),
        results=sum(-(-event.characters // BYTES_PER_TOKEN) + TOOL_BLOCK for event in seen.of(ToolEnded)),
        largest=max(map(_prompt, answered)),
        sent=sum(map(_prompt, turns)),
        read=sum(entry["usage"]["cache_read_input_tokens"] for entry in turns),
        helpers={purpose: _dollars(e for e in answered if e["purpose"] == purpose) for purpose in sorted(purposes)},
        rewrites=rewrites,
        turns_else=_dollars(turns) - rewrites,
        epochs=len(seen.renewals),
        breaks=[event.detail for event in breaks if event.cause != "expired"],
        expired=sum(event.cause == "expired" for event in breaks),
        updates=len(list(seen.of(NotesUpdated))),
        compactions=[Compaction(event.by, event.tokens_before, event.seconds) for event in seen.of(Compacted)],
        failures=[f"{event.layer}: {event.reason}" for event in seen.of(LayerFailed)],
        cpu=list(_cpu(seen)),
    )


def _cpu(seen: Observed) -> Iterator[float]:
    compacted = {turn for turn, event in seen.events if isinstance(event, Compacted)}
    for (_, _, before), (turn, _, after) in pairwise(seen.replied):
        if turn not in compacted:
            yield after - before


def _missing_user_texts(agent: Agent) -> list[str]:
    blocks = (msgspec.json.decode(segment.data) for segment in agent.conversation.segments if segment.role == "user")
    said = "\n".join(block["text"] for block in blocks if block["type"] == "text")
    return [words for words in agent.user_texts if words not in said]


def _dollars(entries: Iterable[Mapping[str, Any]]) -> Decimal:
    return sum((Decimal(entry["cost_usd"]) for entry in entries), Decimal(0))


def _written(entry: Mapping[str, Any]) -> Decimal:
    """Dollars for the cache writes of a request."""
    price = known_models().get(MODEL).price(_prompt(entry))
    written: dict[str, int] = entry["usage"]["cache_creation"]
    short, long = written["ephemeral_5m_input_tokens"], written["ephemeral_1h_input_tokens"]
    return (short * price.write_5m + long * price.write_1h) / MILLION


def _prompt(entry: Mapping[str, Any]) -> int:
    keys = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return sum(entry["usage"][key] for key in keys)
