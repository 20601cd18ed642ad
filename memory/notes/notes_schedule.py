"""Schedule of the updates of session notes: after some growth of the context and tool calls, within a cost limit."""

from decimal import Decimal
from typing import Literal

import attrs

from coterie.memory.layer_settings import NotesSettings

MOST_DOUBLINGS = 5
"""Number of failed updates in a row after which the growth required for the next update no longer doubles."""
AT_LEISURE = Decimal("0.5")
"""Fraction of the cost limit for updates that are not urgent; the rest is for those shortly before a full context."""

Delay = Literal["growth", "calls", "money"]
"""Reason to delay an update of session notes: too little growth of the context, too few tool calls, or its cost."""


@attrs.frozen(kw_only=True)
class UpdateThreshold:
    """Limits for notes that serve as the summary when a full context is compacted (replaced by a summary)."""

    tokens: int
    """Size in tokens at which the context counts as full and is compacted."""
    most: int
    """Size in tokens of messages not covered by the notes above which a compaction cannot use the notes as summary."""

    @property
    def turn_tokens(self) -> int:
        """Assumed largest growth of the context in one turn, in tokens: half of `most`."""
        return self.most // 2


@attrs.frozen(kw_only=True)
class NotesSchedule:
    """Immutable state that decides when an agent's session notes are updated; `after_...` return a changed copy."""

    settings: NotesSettings
    need: UpdateThreshold | None = None
    """Token limits near which an update is urgent, as a compaction uses the notes as summary; None if it never does."""
    since: int = 0
    """Context size in tokens from which growth is counted: usually the size at the start of the last update."""
    has_begun: bool = False
    """True if a first update of the notes has started, even if it failed."""
    calls: int = 0
    """Number of tool calls of the agent since the start of the last update of the notes."""
    is_pausing: bool = False
    """True if the agent made no tool call in its last turn."""
    failures: int = 0
    """Number of updates of the notes that failed in a row."""
    turns_usd: Decimal = Decimal(0)
    notes_usd: Decimal = Decimal(0)

    @property
    def wait(self) -> int:
        """Tokens by which the context must grow before the next update; doubled by each of up to 5 failures."""
        return self.settings.step * 2 ** min(self.failures, MOST_DOUBLINGS) if self.has_begun else self.settings.first

    def after_turn(self, tokens: int, calls: int, usd: Decimal) -> "NotesSchedule":
        """Return the schedule after a turn with this number of tool *calls*, this cost, and *tokens* in the context."""
        return attrs.evolve(
            self,
            since=min(self.since, tokens),
            calls=self.calls + calls,
            is_pausing=calls == 0,
            turns_usd=self.turns_usd + usd,
        )

    def is_close(self, tokens: int) -> bool:
        """True if a context of *tokens* may be full after the next turn; False if notes never serve as a summary."""
        return self.need is not None and tokens + self.need.turn_tokens >= self.need.tokens

    def delay(self, tokens: int, expected_usd: Decimal, unknown: int = 0) -> Delay | None:
        """Return the reason to delay an update that costs about *expected_usd*; None if the update is due now.

        An update is urgent if both the context of *tokens* may soon be full and *unknown*, the tokens that the notes do
        not cover, may soon exceed `need.most`. An update that is not urgent must leave money for an urgent one.
        """
        # New text may have replaced cleared text, so growth alone is not enough; but after a failure only growth
        # counts.
        new = tokens - self.since if self.failures else max(tokens - self.since, unknown)
        if new < self.wait:
            return "growth"
        if self.has_begun and self.calls < self.settings.calls and not self.is_pausing:
            return "calls"
        # Converted through text, so that the float 0.1 becomes exactly 0.1.
        allowed = Decimal(str(self.settings.share)) * self.turns_usd
        if self.need is not None and not (self.is_close(tokens) and unknown + self.need.turn_tokens > self.need.most):
            allowed *= AT_LEISURE
        return None if self.notes_usd + expected_usd <= allowed else "money"

    def after_start(self, tokens: int) -> "NotesSchedule":
        """Return the schedule after an update has started; growth is counted from *tokens* and tool calls from 0."""
        return attrs.evolve(self, since=tokens, has_begun=True, calls=0)

    def after_success(self, usd: Decimal) -> "NotesSchedule":
        """Return the schedule after a successful update that cost *usd*; the count of failures begins at 0 again."""
        return attrs.evolve(self, failures=0, notes_usd=self.notes_usd + usd)

    def after_failure(self, usd: Decimal) -> "NotesSchedule":
        """Return the schedule after a failed update that cost *usd*; the next update requires more growth."""
        return attrs.evolve(self, failures=self.failures + 1, notes_usd=self.notes_usd + usd)

    def after_shrink(self, tokens: int) -> "NotesSchedule":
        """Return the schedule after a compaction shrank the context to *tokens*; growth is counted from there."""
        return attrs.evolve(self, since=tokens)
