"""The numbers of compaction."""

import attrs

from coterie.memory.compaction.cut import KeepLimits


@attrs.frozen(kw_only=True)
class CompactionLimits:
    """Which ways of compaction are open, and how much comes through; sizes in tokens."""

    by_notes: bool = True
    by_model: bool = True
    keep: KeepLimits = attrs.field(factory=KeepLimits)
    words: float = 0.2
    """The part of the window that the human's words may take."""
    files: int = 5
    """The newest files that the model has seen, which it sees again."""
    file: int = 5_000
    files_total: int = 50_000
    skill: int = 5_000
    """Of each skill that was loaded, which the model sees again, the last one first."""
    skills_total: int = 25_000
    failures: int = 3
    """Summaries that fail in a row before no model is asked any more."""

    def within(self, tokens: int) -> "CompactionLimits":
        """The limits in a context that holds *tokens*."""
        files, skills = min(self.files_total, tokens // 4), min(self.skills_total, tokens // 8)
        return attrs.evolve(
            self,
            keep=self.keep.within(tokens),
            files_total=files,
            file=min(self.file, files),
            skills_total=skills,
            skill=min(self.skill, skills),
        )
