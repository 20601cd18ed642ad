"""Events of the context layers."""

from typing import Literal

import msgspec

from coterie.agents.events.agent_events import Event

Mechanism = Literal["time", "cache", "api", "size"]
"""How tool results left the context: by time, by an edit of the cache, by the API, or by the size of images and
documents, of which there were more than a request may hold. Views write "left the context by" before it."""
Cause = Literal["model", "betas", "parameters", "tools", "system", "messages", "expired", "server"]
"""Why a cache was missed; server: nothing that we know of."""


class ResultsStored(Event, tag="results_stored", frozen=True):
    """Layer 1: results too long for the conversation are on disk, with their beginning left in place."""

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
    """The file in which they can be read again."""


class NotesUpdated(Event, tag="notes_updated", frozen=True):
    """Layer 3: the session notes know what happened up to here."""

    path: str
    tokens: int
    """Of the notes."""
    edits: int
    trimmed: list[str]
    """Headings of sections that were over their limit."""
    seconds: float
    cost_usd: str


class Compacted(Event, tag="compacted", frozen=True):
    """Layers 3 and 4: a summary stands for the older part of the conversation."""

    trigger: str
    by: str
    """notes, summary, chunks, or rule."""
    tokens_before: int
    tokens_after: int
    left: int
    """Messages that left the context."""
    kept: int
    words: int
    """Messages of the human, and the task, all of which are still there word for word."""
    words_added: int
    """Those of them that the summary did not hold, and that were put beside it."""
    restored: list[str]
    """Files that the model has in view again."""
    dropped: list[str]
    """Paths, names and numbers of the last turns that are no longer in the context; the first of them."""
    dropped_count: int
    seconds: float
    cost_usd: str
    where: str
    """The file in which all that left can be read again."""
    skills: list[str] = msgspec.field(default_factory=list)
    """Skills whose text the model has in view again."""
    passed_over: dict[str, str] = msgspec.field(default_factory=dict)
    """Why a cheaper way was not taken, by way."""


class SkillLoaded(Event, tag="skill_loaded", frozen=True):
    """The model was shown the text of a skill."""

    name: str
    by: Literal["model", "user", "definition"]
    """Who wanted it: the agent, the user as `/name`, or the definition of the agent's kind."""
    path: str
    characters: int


class MemoryChanged(Event, tag="memory_changed", frozen=True):
    """A memory was written or removed; what it was before stands in the store's history."""

    path: str
    change: str
    """The id of the change, by which it can be shown and undone."""
    action: Literal["added", "changed", "removed"]
    by: Literal["agent", "extraction", "dream", "user"]


class Recalled(Event, tag="recalled", frozen=True):
    """Memories that may be of use for what the human said were looked for."""

    by: Literal["model", "local"]
    candidates: int
    chosen: list[str]
    left_out: dict[str, str]
    """Why not, by file; the first of them."""
    bytes: int
    """Of what is shown to the model."""
    seconds: float
    cost_usd: str


class MemoryExtracted(Event, tag="memory_extracted", frozen=True):
    """Layer 5: what is worth keeping of the last messages is in the memory, or there was nothing."""

    saved: list[str]
    turns: int
    seconds: float
    cost_usd: str
    skipped: str | None = None
    """Why no model was asked."""


class Dreamed(Event, tag="dreamed", frozen=True):
    """Layer 6: a dream is in another phase, or has ended."""

    state: Literal["starting", "updating", "completed", "failed", "killed"]
    change: str | None = None
    """The id of what it changed, by which it can be shown and undone."""
    applied: int = 0
    """Hunks that are in the memory."""
    waiting: int = 0
    """Hunks that wait for the user."""
    dropped: int = 0
    """Hunks whose file has changed meanwhile."""
    reason: str | None = None
    seconds: float = 0.0
    cost_usd: str = "0"


class BreakerTripped(Event, tag="breaker_tripped", frozen=True):
    """Summaries have failed too often: from here on the oldest messages leave by rule, and no model is asked."""

    failures: int
    reason: str


class CacheBroke(Event, tag="cache_broke", frozen=True):
    """The prompt cache gave less than before, and nobody had announced it."""

    cause: Cause
    detail: str
    read_before: int
    read_now: int


class WindowFilling(Event, tag="window_filling", frozen=True):
    """The context has grown over a threshold."""

    level: Literal["warn", "compact", "block"]
    tokens: int
    threshold: int


class LayerFailed(Event, tag="layer_failed", frozen=True):
    """A layer could not do its work; the agent goes on without it."""

    layer: str
    reason: str
