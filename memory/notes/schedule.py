"""When session notes are brought up to date: as the context grows, and as the turns pay for it."""

from decimal import Decimal

import attrs

from coterie.memory.notes.limits import NotesLimits

MOST_DOUBLINGS = 5
"""Failures in a row after which the wait grows no more."""


@attrs.frozen(kw_only=True)
class Schedule:
    """What decides whether an update is due. Changes give a new one."""

    limits: NotesLimits
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
        return self.limits.step * 2 ** min(self.failures, MOST_DOUBLINGS) if self.has_begun else self.limits.first

    def heard(self, tokens: int, calls: int, usd: Decimal) -> "Schedule":
        """A turn has ended, with *tokens* in the context. One that has shrunk is counted from what it holds now."""
        return attrs.evolve(
            self,
            since=min(self.since, tokens),
            calls=self.calls + calls,
            is_pausing=calls == 0,
            turns_usd=self.turns_usd + usd,
        )

    def is_due(self, tokens: int, expected_usd: Decimal) -> bool:
        """Whether to begin an update that will cost about *expected_usd*."""
        if tokens - self.since < self.wait:
            return False
        if self.has_begun and self.calls < self.limits.calls and not self.is_pausing:
            return False
        # Through the text, so that a float that reads 0.1 means 0.1.
        return self.notes_usd + expected_usd <= Decimal(str(self.limits.share)) * self.turns_usd

    def begun(self, tokens: int) -> "Schedule":
        """An update begins that will know what these *tokens* hold."""
        return attrs.evolve(self, since=tokens, has_begun=True, calls=0)

    def done(self, usd: Decimal) -> "Schedule":
        """It has cost *usd*, and the notes are up to date."""
        return attrs.evolve(self, failures=0, notes_usd=self.notes_usd + usd)

    def failed(self, usd: Decimal) -> "Schedule":
        """It has cost *usd*, and came to nothing."""
        return attrs.evolve(self, failures=self.failures + 1, notes_usd=self.notes_usd + usd)

    def shrunk(self, tokens: int) -> "Schedule":
        """The context holds only *tokens* now."""
        return attrs.evolve(self, since=tokens)
