"""The schedule of notes updates: by growth of the context, by cost, and before it is full."""

from decimal import Decimal
from typing import Literal

import attrs

from coterie.memory.layer_settings import NotesSettings

MOST_DOUBLINGS = 5
"""Failures in a row after which the wait grows no more."""
AT_LEISURE = Decimal("0.5")
"""The part of their share that updates may cost before they are needed; the rest is put by for those that are."""

Delay = Literal["growth", "calls", "money"]
"""What an update waits for."""


@attrs.frozen(kw_only=True)
class UpdateThreshold:
    """When the notes will be needed: as the summary of a context that is full, if they are not too far behind it."""

    tokens: int
    """Of the context that is full."""
    most: int
    """Tokens that may stay beside the notes, because they do not know of them."""

    @property
    def turn_tokens(self) -> int:
        """Tokens that one turn may bring: if it were more than half of those that may stay, nothing would help."""
        return self.most // 2


@attrs.frozen(kw_only=True)
class NotesSchedule:
    """What decides whether an update is due. Changes give a new one."""

    settings: NotesSettings
    need: UpdateThreshold | None = None
    """None where nobody will take them for a summary."""
    since: int = 0
    """Tokens of context from which its growth is counted."""
    has_begun: bool = False
    """Whether there has been an update, though it may have failed."""
    calls: int = 0
    """Of tools since the last one."""
    is_pausing: bool = False
    """Whether the last turn made no calls."""
    failures: int = 0
    """In a row."""
    turns_usd: Decimal = Decimal(0)
    notes_usd: Decimal = Decimal(0)

    @property
    def wait(self) -> int:
        """Tokens by which the context must grow."""
        return self.settings.step * 2 ** min(self.failures, MOST_DOUBLINGS) if self.has_begun else self.settings.first

    def after_turn(self, tokens: int, calls: int, usd: Decimal) -> "NotesSchedule":
        """A turn has ended, with *tokens* in the context. One that has shrunk is counted from what it holds now."""
        return attrs.evolve(
            self,
            since=min(self.since, tokens),
            calls=self.calls + calls,
            is_pausing=calls == 0,
            turns_usd=self.turns_usd + usd,
        )

    def is_close(self, tokens: int) -> bool:
        """Whether a context of *tokens* may be full after the next turn."""
        return self.need is not None and tokens + self.need.turn_tokens >= self.need.tokens

    def delay(self, tokens: int, expected_usd: Decimal, unknown: int = 0) -> Delay | None:
        """What an update waits for that will cost about *expected_usd*; None if it is due.

        One that comes before it is needed leaves money for one that is: when the context may soon be full, and too many
        of its tokens *unknown* to the notes.
        """
        # What is new may have taken the place of what was cleared; but one that failed must wait for more to come.
        new = tokens - self.since if self.failures else max(tokens - self.since, unknown)
        if new < self.wait:
            return "growth"
        if self.has_begun and self.calls < self.settings.calls and not self.is_pausing:
            return "calls"
        # Through the text, so that a float that reads 0.1 means 0.1.
        allowed = Decimal(str(self.settings.share)) * self.turns_usd
        if self.need is not None and not (self.is_close(tokens) and unknown + self.need.turn_tokens > self.need.most):
            allowed *= AT_LEISURE
        return None if self.notes_usd + expected_usd <= allowed else "money"

    def after_start(self, tokens: int) -> "NotesSchedule":
        """An update begins that will know what these *tokens* hold."""
        return attrs.evolve(self, since=tokens, has_begun=True, calls=0)

    def after_success(self, usd: Decimal) -> "NotesSchedule":
        """It has cost *usd*, and the notes are up to date."""
        return attrs.evolve(self, failures=0, notes_usd=self.notes_usd + usd)

    def after_failure(self, usd: Decimal) -> "NotesSchedule":
        """It has cost *usd*, and came to nothing."""
        return attrs.evolve(self, failures=self.failures + 1, notes_usd=self.notes_usd + usd)

    def after_shrink(self, tokens: int) -> "NotesSchedule":
        """The context holds only *tokens* now."""
        return attrs.evolve(self, since=tokens)
