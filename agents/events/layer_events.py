"""Events of the context layers."""

from typing import Literal

import msgspec

from coterie.agents.events.agent_events import Event

Mechanism = Literal["time", "cache", "api", "size"]
"""Way in which tool results left the context.

By time, by an edit of the cache, by the API, or by the size of images and documents, which exceeded the limit of a
request. Views write "cleared by" before the value.
"""
Cause = Literal["model", "betas", "parameters", "tools", "system", "messages", "expired", "server"]
"""Cause of a cache miss; "server" means that no known cause applies."""


class ResultsStored(Event, tag="results_stored", frozen=True):
    """Layer 1: long results were stored on disk; their beginning stays in the conversation."""

    paths: list[str]
    characters_before: int
    characters_after: int


class ResultsCleared(Event, tag="results_cleared", frozen=True):
    """Layer 2: old tool results left the context."""

    mechanism: Mechanism
    results: int
    tokens_before: int
    tokens_after: int
    where: str
    """File that contains the results."""


class NotesUpdated(Event, tag="notes_updated", frozen=True):
    """Layer 3: the session notes are up to date with the conversation."""

    path: str
    tokens: int
    """Size of the notes."""
    edits: int
    trimmed: list[str]
    """Headings of sections that exceeded their limit."""
    seconds: float
    cost_usd: str


class Compacted(Event, tag="compacted", frozen=True):
    """Layers 3 and 4: a summary replaces the older part of the conversation."""

    trigger: str
    by: str
    """One of notes, summary, chunks and rule."""
    tokens_before: int
    tokens_after: int
    left: int
    """Number of messages that left the context."""
    kept: int
    words: int
    """Number of messages of the user, including the task; all of them are still in the context, unchanged."""
    words_added: int
    """Number of user messages that the summary did not contain and that were added to it."""
    restored: list[str]
    """Files that were put back into the context."""
    dropped: list[str]
    """Paths, names and numbers of the last turns that are no longer in the context; only the first ones."""
    dropped_count: int
    seconds: float
    cost_usd: str
    where: str
    """File that contains everything that left the context."""
    skills: list[str] = msgspec.field(default_factory=list)
    """Skills whose text was put back into the context."""
    passed_over: dict[str, str] = msgspec.field(default_factory=dict)
    """Reasons why cheaper strategies were not used, by strategy."""


class SkillLoaded(Event, tag="skill_loaded", frozen=True):
    """The text of a skill was shown to the model."""

    name: str
    by: Literal["model", "user", "definition"]
    """Origin of the request: the agent, the user as `/name`, or the definition of the agent type."""
    path: str
    characters: int


class MemoryChanged(Event, tag="memory_changed", frozen=True):
    """A memory was written or removed; its earlier content is in the history of the store."""

    path: str
    change: str
    """Id of the change, which can be shown and undone."""
    action: Literal["added", "changed", "removed"]
    by: Literal["agent", "extraction", "dream", "user"]


class Recalled(Event, tag="recalled", frozen=True):
    """Memories that fit the user's message were searched for."""

    by: Literal["model", "local"]
    candidates: int
    chosen: list[str]
    left_out: dict[str, str]
    """Reasons why other memories were not chosen, by file; only the first ones."""
    bytes: int
    """Size of the memories that are shown to the model."""
    seconds: float
    cost_usd: str


class MemoryExtracted(Event, tag="memory_extracted", frozen=True):
    """Layer 5: the last messages were searched for memories; `saved` may be empty."""

    saved: list[str]
    turns: int
    seconds: float
    cost_usd: str
    skipped: str | None = None
    """Reason why no model was called; None if one was."""


class Dreamed(Event, tag="dreamed", frozen=True):
    """Layer 6: a dream has entered another phase, or has ended."""

    state: Literal["starting", "updating", "completed", "failed", "killed"]
    change: str | None = None
    """Id of the change, which can be shown and undone; None without a change."""
    applied: int = 0
    """Number of hunks that were applied to the memory."""
    waiting: int = 0
    """Number of hunks that wait for the user."""
    dropped: int = 0
    """Number of hunks whose file has changed since the dream started."""
    reason: str | None = None
    seconds: float = 0.0
    cost_usd: str = "0"


class BreakerTripped(Event, tag="breaker_tripped", frozen=True):
    """Summaries have failed too often: from now on the oldest messages are removed by rule, without a model."""

    failures: int
    reason: str


class CacheBroke(Event, tag="cache_broke", frozen=True):
    """The prompt cache returned fewer tokens than before, for no announced reason."""

    cause: Cause
    detail: str
    read_before: int
    read_now: int


class WindowFilling(Event, tag="window_filling", frozen=True):
    """The size of the context has exceeded a threshold."""

    level: Literal["warn", "compact", "block"]
    tokens: int
    threshold: int


class LayerFailed(Event, tag="layer_failed", frozen=True):
    """A layer failed; the agent continues without it."""

    layer: str
    reason: str
