"""Settings of the context layers, which keep the context of an agent small, and of recall, which shows memories.

Each class is one section of the settings file and is passed unchanged to the code that uses it.
`coterie.agents.settings` composes the sections into the settings of a session. This module does not import trio,
because clients load it.
"""

from pathlib import Path
from typing import Literal

import attrs

DeletionPolicy = Literal["ask", "apply"]
"""Treatment of deletions that a dream (a model's revision of the memories) proposes: "ask" the user or "apply" them."""
RecallMethod = Literal["model", "local"]
"""Method to select the memories that are shown: a request to a model, or the local ranker, which compares words."""


@attrs.frozen(kw_only=True)
class ResultSettings:
    """`[layers.results]`, layer 1: size limits, in characters, above which tool results are stored in files."""

    enabled: bool = True
    cap: int = 50_000
    """Maximum characters of a result that is not stored in a file, for tools without a field of their own below."""
    bash: int = 30_000
    grep: int = 20_000
    mcp: int = 100_000
    """Maximum characters of a result that is not stored in a file, for tools of MCP servers."""
    total: int = 200_000
    """Maximum characters of all tool results in one message together; above it, the largest are stored in files."""
    preview: int = 2_000
    """Number of bytes from the beginning of a stored result that stay in the conversation."""


@attrs.frozen(kw_only=True)
class ClearingSettings:
    """`[layers.clearing]`, layer 2: removal of old tool results from the context."""

    by_time: bool = True
    by_cache: bool = True
    """True to delete old results from the prompt cache; has an effect only if the provider supports cache edits."""
    by_api: bool = True
    keep: int = attrs.field(default=5, validator=attrs.validators.ge(1))
    """Number of newest results that are never cleared."""
    trigger: int = 10
    """Number of clearable results in the prompt cache above which all but the newest `keep` are deleted from it."""
    expected_turns: int = 50
    """Number of turns in which a clearing by the API must save at least the cost of writing the prompt cache again."""


@attrs.frozen(kw_only=True)
class NotesSettings:
    """`[layers.notes]`, layer 3: when session notes are updated, and their largest size. Sizes are in tokens."""

    enabled: bool = True
    first: int = 10_000
    """Size of the context, in tokens, at which the notes are first updated."""
    step: int = 5_000
    """Minimum growth of the context, in tokens, between two updates of the notes."""
    calls: int = 3
    """Minimum number of tool calls between two updates of the notes; not required if the last turn made no call."""
    share: float = 0.08
    """Maximum cost of all updates of the notes, as a fraction of the cost of the agent's turns."""
    section: int = 2_000
    total: int = 12_000
    """Maximum size, in tokens, of all sections of the notes together."""
    template: Path | None = None
    prompt: Path | None = None


@attrs.frozen(kw_only=True)
class CompactionSettings:
    """`[layers.compaction]`, layer 4: how a conversation is summarised, and how much stays. Sizes in tokens."""

    enabled: bool = True
    by_notes: bool = True
    by_model: bool = True
    keep_least: int = 10_000
    """Minimum size, in tokens, of the last part of the conversation, which a compaction leaves unchanged."""
    keep_texts: int = 5
    """Minimum number of messages with text in the last part, which a compaction leaves unchanged."""
    keep_most: int = 40_000
    """Maximum tokens of the unchanged last part. The last message and its tool results stay even if they are larger."""
    files: int = 5
    """Number of most recently read files whose content is restored after a compaction."""
    file: int = 5_000
    files_total: int = 50_000
    skill: int = 5_000
    """Maximum tokens of each skill that is restored after a compaction; the skill that was loaded last comes first."""
    skills_total: int = 25_000
    failures: int = 3
    """Number of failed summaries in a row after which an agent asks no model for a summary again."""

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
    """`[layers.extraction]`, layer 5: how often a helper (a short model call) saves memories, and its limits."""

    enabled: bool | None = None
    every: int = 1
    """Number of runs of the agent (from a message until it has no more work) after which memories are extracted."""
    turns: int = 5
    """Maximum number of replies of the model in one extraction."""
    drain: float = 60.0
    """Maximum seconds that an ending agent waits for a running extraction."""


@attrs.frozen(kw_only=True)
class DreamingSettings:
    """`[layers.dreaming]`, layer 6: when a dream (a model's revision of the memories) is due, and its limits."""

    enabled: bool | None = None
    hours: float = 24.0
    """Minimum hours between two dreams."""
    scan_minutes: float = 10.0
    """Minimum minutes between two scans of the sessions for new activity."""
    sessions: int = 5
    """Minimum number of sessions with activity since the last dream; with fewer, no dream is due."""
    turns: int = 30
    """Maximum number of replies of the model in one dream."""
    deletions: DeletionPolicy = "ask"
    drain: float = 60.0
    """Maximum seconds that the ending lead (first agent) waits for a running dream."""


@attrs.frozen(kw_only=True)
class WindowSettings:
    """`[layers.window]`: the size of the context window."""

    compact_window: int | None = None
    """Size of the context window in tokens for all thresholds; has an effect only if the model's window is larger."""


@attrs.frozen(kw_only=True)
class LayersSettings:
    """`[layers]`: the settings of all layers, one section for each."""

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
    """Method to select memories; None for a model, or for the local ranker if the model is scripted."""
    model: str = "sonnet"
    """Id or alias of the model that selects memories."""
    most: int = 5
    """Maximum number of memories shown for one message."""
    scan: int = 200
    """Maximum number of memories from which the model selects; of more memories, the local ranker preselects these."""
    file_lines: int = 200
    file_bytes: int = 4_096
    """Maximum number of bytes shown of one memory; a longer memory is cut."""
    session_bytes: int = 61_440
    """Maximum number of bytes of all memories that are shown to one agent."""
    stale_days: int = 2
    """Age in days from which a memory is shown with the warning that it may be outdated."""
