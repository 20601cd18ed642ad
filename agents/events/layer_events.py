"""Events of the context layers (steps around model calls): results, notes, compaction, memory and prompt cache."""

from typing import Literal

import msgspec

from coterie.agents.events.agent_events import Event

Mechanism = Literal["time", "cache", "api", "size"]
"""Method that removed tool results from the context.

time: after the cache had expired. cache: by a cache edit. api: by the API. size: images and documents that exceeded the
limit of a request. Views write "cleared by" before the value.
"""
Cause = Literal["model", "betas", "parameters", "tools", "system", "messages", "expired", "server"]
"""Cause of a miss in the prompt cache: the changed part of the request, expiry, or "server" for no known cause."""


class ResultsStored(Event, tag="results_stored", frozen=True):
    """Layer 1: long tool results were stored in files; only their beginning stays in the conversation."""

    paths: list[str]
    characters_before: int
    characters_after: int


class ResultsCleared(Event, tag="results_cleared", frozen=True):
    """Layer 2: old tool results were removed from the context, to make room."""

    mechanism: Mechanism
    results: int
    tokens_before: int
    tokens_after: int
    where: str
    """Path of the transcript, which still contains the removed results."""


class NotesUpdated(Event, tag="notes_updated", frozen=True):
    """Layer 3: the session notes, a file with a summary of the agent's work, were updated."""

    path: str
    tokens: int
    """Estimated size of the notes in tokens."""
    edits: int
    trimmed: list[str]
    """Headings of the sections that were shortened because they exceeded their size limit."""
    seconds: float
    cost_usd: str


class Compacted(Event, tag="compacted", frozen=True):
    """Layers 3 and 4: a summary replaces the older part of the conversation."""

    trigger: str
    by: str
    """Source of the summary: `notes`, one model call (`summary`), several (`chunks`), or a `rule` without a model."""
    tokens_before: int
    tokens_after: int
    left: int
    """Number of messages that were removed from the context."""
    kept: int
    words: int
    """Number of texts of the user so far, including the task. They stay in the context; too long ones are truncated."""
    words_added: int
    """Number of texts of the user that were added again, because neither summary nor kept messages contain them."""
    restored: list[str]
    """Paths of recently read files whose content was added to the context again."""
    dropped: list[str]
    """Paths, names and numbers that only the last removed turns contain, not the new context; at most the first 200."""
    dropped_count: int
    seconds: float
    cost_usd: str
    where: str
    """Path of the transcript, which still contains everything that was removed from the context."""
    skills: list[str] = msgspec.field(default_factory=list)
    """Names of the skills whose text was added to the context again."""
    passed_over: dict[str, str] = msgspec.field(default_factory=dict)
    """Reasons why cheaper sources of the summary were not used, by source: `notes`, or `summary` for a model call."""


class SkillLoaded(Event, tag="skill_loaded", frozen=True):
    """The text of a skill (stored instructions for recurring work) was added to the conversation."""

    name: str
    by: Literal["model", "user", "definition"]
    """Origin of the request: the agent, the user as `/name`, or the definition of the agent type."""
    path: str
    characters: int


class MemoryChanged(Event, tag="memory_changed", frozen=True):
    """A memory file was added, changed or removed. The history of the memory store keeps the earlier content."""

    path: str
    change: str
    """Id of the change in the history, with which the user can show or undo the change."""
    action: Literal["added", "changed", "removed"]
    by: Literal["agent", "extraction", "dream", "user"]


class Recalled(Event, tag="recalled", frozen=True):
    """The stored memories were searched for those that fit a message of the user."""

    by: Literal["model", "local"]
    candidates: int
    chosen: list[str]
    left_out: dict[str, str]
    """Reasons why the other memories were not shown, by file path; at most the first 20."""
    bytes: int
    """Size in bytes of the texts of all chosen memories, as they are shown to the model."""
    seconds: float
    cost_usd: str


class MemoryExtracted(Event, tag="memory_extracted", frozen=True):
    """Layer 5: new messages were searched for facts worth remembering; `saved` lists the written memory files."""

    saved: list[str]
    turns: int
    seconds: float
    cost_usd: str
    skipped: str | None = None
    """Reason why the search was skipped without a model call; None if a model was called."""


class Dreamed(Event, tag="dreamed", frozen=True):
    """Layer 6: the state of a dream (a model tidies up the stored memories) has changed."""

    state: Literal["starting", "updating", "completed", "failed", "killed"]
    change: str | None = None
    """Id with which the user can show or undo the changes of a completed dream; None if it proposed no change."""
    applied: int = 0
    """Number of proposed hunks (changed passages) that were applied to the memory."""
    waiting: int = 0
    """Number of proposed hunks that wait for the approval of the user."""
    dropped: int = 0
    """Number of proposed hunks that were discarded, because their file has changed since the dream started."""
    reason: str | None = None
    seconds: float = 0.0
    cost_usd: str = "0"


class BreakerTripped(Event, tag="breaker_tripped", frozen=True):
    """Too many summaries by the model failed in a row. From now on, this agent's compaction asks no model for one."""

    failures: int
    reason: str


class CacheBroke(Event, tag="cache_broke", frozen=True):
    """A model call read fewer tokens from the prompt cache than expected, and no layer had announced this loss."""

    cause: Cause
    detail: str
    read_before: int
    read_now: int


class WindowFilling(Event, tag="window_filling", frozen=True):
    """The number of tokens in the agent's context has reached a threshold of the context window."""

    level: Literal["warn", "compact", "block"]
    tokens: int
    threshold: int


class LayerFailed(Event, tag="layer_failed", frozen=True):
    """A part of an agent, such as mail, failed. The agent continues, unless it is `control`, the link to the root."""

    layer: str
    reason: str
