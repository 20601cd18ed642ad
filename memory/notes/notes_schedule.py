"""Schedule of notes updates: by growth of the context, by cost, and before the context is full."""

from decimal import Decimal
from typing import Literal

import attrs

from coterie.memory.layer_settings import NotesSettings

MOST_DOUBLINGS = 5
"""Number of consecutive failures after which the wait no longer doubles."""
AT_LEISURE = Decimal("0.5")
"""Part of the cost limit for updates that are not urgent; the rest is reserved for urgent updates."""

Delay = Literal["growth", "calls", "money"]
"""The condition that delays an update of the session notes."""


@attrs.frozen(kw_only=True)
class UpdateThreshold:
    """The limits under which notes can replace a full context."""

    tokens: int
    """Size of a full context, in tokens."""
    most: int
    """Largest number of tokens that may stay with the notes because the notes do not cover them."""

    @property
    def turn_tokens(self) -> int:
        """Largest assumed growth in one turn: with more than half of `most` no schedule could keep up."""
        return self.most // 2


@attrs.frozen(kw_only=True)
class NotesSchedule:
    """State that decides if an update is due; immutable."""

    settings: NotesSettings
    need: UpdateThreshold | None = None
    """None if the notes are never used as a summary."""
    since: int = 0
    """Context size from which growth is counted."""
    has_begun: bool = False
    """True after the first update started, even if it failed."""
    calls: int = 0
    """Tool calls since the last update of the notes."""
    is_pausing: bool = False
    """True if the last turn made no calls."""
    failures: int = 0
    """Number of consecutive failed updates."""
    turns_usd: Decimal = Decimal(0)
    notes_usd: Decimal = Decimal(0)

    @property
    def wait(self) -> int:
        """Tokens by which the context must grow before the next update."""
        return self.settings.step * 2 ** min(self.failures, MOST_DOUBLINGS) if self.has_begun else self.settings.first

    def after_turn(self, tokens: int, calls: int, usd: Decimal) -> "NotesSchedule":
        """Return the schedule after a turn, with *tokens* in the context."""
        return attrs.evolve(
            self,
            since=min(self.since, tokens),
            calls=self.calls + calls,
            is_pausing=calls == 0,
            turns_usd=self.turns_usd + usd,
        )

    def is_close(self, tokens: int) -> bool:
        """True if a context of *tokens* may be full after the next turn."""
        return self.need is not None and tokens + self.need.turn_tokens >= self.need.tokens

    def delay(self, tokens: int, expected_usd: Decimal, unknown: int = 0) -> Delay | None:
        """Return the condition that delays an update of about *expected_usd*; None if the update is due.

        An update that is not urgent must leave money for an urgent one. An update is urgent if the context may soon be
        full, and *unknown*, the tokens that the notes do not cover, may soon exceed the limit.
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
        """Return the schedule after an update started that covers *tokens*."""
        return attrs.evolve(self, since=tokens, has_begun=True, calls=0)

    def after_success(self, usd: Decimal) -> "NotesSchedule":
        """Return the schedule after an update for *usd* succeeded."""
        return attrs.evolve(self, failures=0, notes_usd=self.notes_usd + usd)

    def after_failure(self, usd: Decimal) -> "NotesSchedule":
        """Return the schedule after an update for *usd* failed."""
        return attrs.evolve(self, failures=self.failures + 1, notes_usd=self.notes_usd + usd)

    def after_shrink(self, tokens: int) -> "NotesSchedule":
        """Return the schedule after the context shrank to *tokens*."""
        return attrs.evolve(self, since=tokens)
