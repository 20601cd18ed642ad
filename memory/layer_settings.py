"""Settings of the context layers and of recall.

Each section is declared once, here, and passed unchanged to the code that uses it. `coterie.agents.settings` composes
the sections into the settings of a session. This module does not import trio, because clients load it.
"""

from pathlib import Path
from typing import Literal

import attrs

DeletionPolicy = Literal["ask", "apply"]
"""Treatment of the deletions that a dream proposes: "ask" waits for approval, "apply" applies them."""
RecallMethod = Literal["model", "local"]
"""Selector of memories: a model, or the local ranker."""


@attrs.frozen(kw_only=True)
class ResultSettings:
    """`[layers.results]`, layer 1: size limits of tool results in the conversation, in characters."""

    enabled: bool = True
    cap: int = 50_000
    """Longest result of a tool that has no limit of its own below."""
    bash: int = 30_000
    grep: int = 20_000
    mcp: int = 100_000
    """Longest result of a tool of an MCP server."""
    total: int = 200_000
    """Largest size of all tool results of one message together."""
    preview: int = 2_000
    """Bytes of a stored result that stay in the conversation."""


@attrs.frozen(kw_only=True)
class ClearingSettings:
    """`[layers.clearing]`, layer 2: removal of old tool results from the context."""

    by_time: bool = True
    by_cache: bool = True
    """Has an effect only where the provider accepts edits of its cache."""
    by_api: bool = True
    keep: int = attrs.field(default=5, validator=attrs.validators.ge(1))
    """Number of newest results that are never cleared."""
    trigger: int = 10
    """Number of clearable results above which the cache is edited."""
    expected_turns: int = 50
    """Number of further turns over which clearing must pay for rewriting the cache."""


@attrs.frozen(kw_only=True)
class NotesSettings:
    """`[layers.notes]`, layer 3: when session notes are updated, and their largest size. Sizes are in tokens."""

    enabled: bool = True
    first: int = 10_000
    """Context size at which the notes are first updated."""
    step: int = 5_000
    """Least growth of the context between two updates of the notes."""
    calls: int = 3
    """Least number of tool calls between two updates; not required if the last turn made no call."""
    share: float = 0.08
    """Largest cost of all updates, as a share of the cost of the turns."""
    section: int = 2_000
    total: int = 12_000
    """Largest size of all sections of the notes together."""
    template: Path | None = None
    prompt: Path | None = None


@attrs.frozen(kw_only=True)
class CompactionSettings:
    """`[layers.compaction]`, layer 4: how a conversation is summarised, and how much stays. Sizes in tokens."""

    enabled: bool = True
    by_notes: bool = True
    by_model: bool = True
    keep_least: int = 10_000
    """Least size of the end of the conversation that stays unchanged."""
    keep_texts: int = 5
    """Least number of messages with text in that end."""
    keep_most: int = 40_000
    """Largest size of that end; the last round always stays, even if it is larger."""
    files: int = 5
    """Number of most recently read files whose content is restored after a compaction."""
    file: int = 5_000
    files_total: int = 50_000
    skill: int = 5_000
    """Largest size of each skill that is restored after a compaction, the last loaded skill first."""
    skills_total: int = 25_000
    failures: int = 3
    """Number of summaries that may fail in a row before the model is no longer asked."""

    def within(self, tokens: int) -> "CompactionSettings":
        """Return the settings for a context of *tokens*, with smaller limits if the context is small."""
        files, skills = min(self.files_total, tokens // 4), min(self.skills_total, tokens // 8)
        return attrs.evolve(
            self,
            keep_least=min(self.keep_least, tokens // 8),
            keep_most=min(self.keep_most, tokens // 3),
            files_total=files,
            file=min(self.file, files),
            skills_total=skills,
            skill=min(self.skill, skills),
        )


@attrs.frozen(kw_only=True)
class ExtractionSettings:
    """`[layers.extraction]`, layer 5: how often memories are extracted, and the limits of one extraction."""

    enabled: bool | None = None
    every: int = 1
    """Number of runs of the turn loop between two extractions."""
    turns: int = 5
    """Largest number of replies of the extraction helper."""
    drain: float = 60.0
    """Seconds that an ending agent waits for a running extraction."""


@attrs.frozen(kw_only=True)
class DreamingSettings:
    """`[layers.dreaming]`, layer 6: when a dream is due, and its limits."""

    enabled: bool | None = None
    hours: float = 24.0
    """Least time between two dreams."""
    scan_minutes: float = 10.0
    """Least time between two scans of the sessions for new activity."""
    sessions: int = 5
    """Least number of sessions touched since the last dream."""
    turns: int = 30
    """Largest number of replies of the dreaming helper."""
    deletions: DeletionPolicy = "ask"
    drain: float = 60.0
    """Seconds that an ending session waits for a running dream."""


@attrs.frozen(kw_only=True)
class WindowSettings:
    """`[layers.window]`: the size of the context window."""

    compact_window: int | None = None
    """Context window from which the thresholds are computed, if the window of the model is larger."""


@attrs.frozen(kw_only=True)
class LayersSettings:
    """`[layers]`: the sections of all layers."""

    results: ResultSettings = ResultSettings()
    clearing: ClearingSettings = ClearingSettings()
    notes: NotesSettings = NotesSettings()
    compaction: CompactionSettings = CompactionSettings()
    extraction: ExtractionSettings = ExtractionSettings()
    dreaming: DreamingSettings = DreamingSettings()
    window: WindowSettings = WindowSettings()


@attrs.frozen(kw_only=True)
class RecallSettings:
    """`[memory.recall]`: how memories are selected for a message, and how much of them is shown."""

    enabled: bool = True
    by: RecallMethod | None = None
    """Selector; None means a model, or the local ranker if the embedded server is used."""
    model: str = "sonnet"
    """Id or alias of the model that selects."""
    most: int = 5
    """Largest number of memories for one message."""
    scan: int = 200
    """Largest number of files that the model selects from; the local ranker reduces a longer list to it."""
    file_lines: int = 200
    file_bytes: int = 4_096
    """Largest size of one memory; a longer memory is cut."""
    session_bytes: int = 61_440
    """Largest size of all memories shown to one agent."""
    stale_days: int = 2
    """Age in days from which a memory is shown with a warning."""
