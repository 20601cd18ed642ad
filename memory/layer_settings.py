"""Settings of the context layers and of recall.

Each section is declared here once, and passed as it is to the code that reads it. `coterie.agents.settings` composes
the sections into the settings of a session. Nothing here imports trio: clients load this module.
"""

from pathlib import Path
from typing import Literal

import attrs

DeletionPolicy = Literal["ask", "apply"]
"""What happens to the deletions of a dream: they wait for approval, or they are applied."""
RecallMethod = Literal["model", "local"]
"""The selector of memories: a model, or the local ranker."""


@attrs.frozen(kw_only=True)
class ResultSettings:
    """`[layers.results]`, layer 1: how much of a tool result enters the conversation. Sizes in characters."""

    enabled: bool = True
    cap: int = 50_000
    """Longest result of a tool that has no cap of its own below."""
    bash: int = 30_000
    grep: int = 20_000
    mcp: int = 100_000
    """Longest result of a tool of an MCP server."""
    total: int = 200_000
    """Size of all results of one message together."""
    preview: int = 2_000
    """Bytes of a stored result that stay in the conversation."""


@attrs.frozen(kw_only=True)
class ClearingSettings:
    """`[layers.clearing]`, layer 2: when old tool results leave the context."""

    by_time: bool = True
    by_cache: bool = True
    """Only where the provider accepts edits of its cache."""
    by_api: bool = True
    keep: int = attrs.field(default=5, validator=attrs.validators.ge(1))
    """Number of newest results that stay."""
    trigger: int = 10
    """Number of clearable results above which the cache is edited."""
    expected_turns: int = 50
    """Number of further turns over which a smaller prompt has to pay for its rewrite."""

    @classmethod
    def none(cls) -> "ClearingSettings":
        """Settings with every mechanism off."""
        return cls(**{field.name: False for field in attrs.fields(cls) if field.name.startswith("by_")})


@attrs.frozen(kw_only=True)
class NotesSettings:
    """`[layers.notes]`, layer 3: when session notes are updated, and how long they may be. Sizes in tokens."""

    enabled: bool = True
    first: int = 10_000
    """Size of the context before the first update."""
    step: int = 5_000
    """Least growth of the context between two updates."""
    calls: int = 3
    """Tool calls between two updates, unless the last turn made none."""
    share: float = 0.08
    """Largest cost of all updates, as a share of the cost of the turns."""
    section: int = 2_000
    total: int = 12_000
    """Size of all sections together."""
    template: Path | None = None
    prompt: Path | None = None


@attrs.frozen(kw_only=True)
class CompactionSettings:
    """`[layers.compaction]`, layer 4: how a conversation is summarized, and what stays. Sizes in tokens."""

    enabled: bool = True
    by_notes: bool = True
    by_model: bool = True
    keep_least: int = 10_000
    """Least size of the end of the conversation that stays as it is."""
    keep_texts: int = 5
    """Least number of messages with text in it."""
    keep_most: int = 40_000
    """Its largest size; the last round stays even if it alone is larger."""
    files: int = 5
    """Number of files that the model read last, and gets to see again."""
    file: int = 5_000
    files_total: int = 50_000
    skill: int = 5_000
    """Size of each loaded skill that the model gets to see again, the last one first."""
    skills_total: int = 25_000
    failures: int = 3
    """Number of summaries that fail in a row before no model is asked any more."""

    def within(self, tokens: int) -> "CompactionSettings":
        """The settings for a context of *tokens*: a small one cannot keep as much."""
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
    """`[layers.extraction]`, layer 5: how often memories are extracted, and how long that may take."""

    enabled: bool | None = None
    every: int = 1
    """Runs of the turn loop between two extractions."""
    turns: int = 5
    """Largest number of replies of the helper."""
    drain: float = 60.0
    """Seconds that the end of an agent waits for a running extraction."""


@attrs.frozen(kw_only=True)
class DreamingSettings:
    """`[layers.dreaming]`, layer 6: when a dream is due, and what it may do."""

    enabled: bool | None = None
    hours: float = 24.0
    """Least time between two dreams."""
    scan_minutes: float = 10.0
    """Least time between two scans of the sessions."""
    sessions: int = 5
    """Least number of sessions touched since the last dream."""
    turns: int = 30
    """Largest number of replies of the helper."""
    deletions: DeletionPolicy = "ask"
    drain: float = 60.0
    """Seconds that the end of a session waits for a running dream."""


@attrs.frozen(kw_only=True)
class WindowSettings:
    """`[layers.window]`."""

    compact_window: int | None = None
    """Size of the context window that the thresholds are computed from, if that of the model is larger."""


@attrs.frozen(kw_only=True)
class LayersSettings:
    """`[layers]`."""

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
    """None for the model, or for the local ranker with the embedded server."""
    model: str = "sonnet"
    """Id or alias of the model that selects."""
    most: int = 5
    """Number of memories for one message."""
    scan: int = 200
    """Number of files that the model selects from; of more, the local ranker takes the best."""
    file_lines: int = 200
    file_bytes: int = 4_096
    """Size of one memory; a longer one is cut."""
    session_bytes: int = 61_440
    """Size of all memories that one agent is shown."""
    stale_days: int = 2
    """Age from which a memory is shown with a warning."""
