"""The check whether a dream is due, the cheapest condition first."""

from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from coterie.clock import Clock
from coterie.memory.dreaming.dream_lock import last_dream_time
from coterie.memory.layer_settings import DreamingSettings

HOUR = 3600.0
MINUTE = 60.0


@attrs.frozen(kw_only=True)
class SessionActivity:
    """A session of the project, and when something was last said in it."""

    directory: Path
    at: float


@attrs.define(eq=False)
class DueCheck:
    """The questions before a dream of one store; it remembers when it last looked at the sessions.

    The last question, whether somebody else dreams, is asked by whoever takes the lock.
    """

    directory: Path
    sessions: Callable[[], Sequence[SessionActivity]]
    """Those that count; it blocks."""
    settings: DreamingSettings
    clock: Clock
    last: float | None = attrs.field(default=None, init=False)
    """When the last dream was, as far as is known; None for never."""
    _scanned: float | None = attrs.field(default=None, init=False)

    def reason_not_due(self) -> str | None:
        """Why no dream is due, in one line; None if one is. Blocks. Raises `DreamRefused` and `OSError`."""
        last = self.last = last_dream_time(self.directory, self.clock)
        now = self.clock.now()
        if last is not None and now - last < self.settings.hours * HOUR:
            return (
                f"the last dream was {(now - last) / HOUR:.1f} hours ago; there are {self.settings.hours:g} between two"
            )
        if self._scanned is not None and 0 <= now - self._scanned < self.settings.scan_minutes * MINUTE:
            return f"the sessions were counted {(now - self._scanned) / MINUTE:.0f} minutes ago"
        self._scanned = now
        count = len(active_since(self.sessions(), last))
        if count < self.settings.sessions:
            return f"{count} sessions were touched since the last dream; {self.settings.sessions} are needed"
        return None


def active_since(sessions: Sequence[SessionActivity], last: float | None) -> list[SessionActivity]:
    """Those of *sessions* in which something was said after *last*, the newest first; all of them if that is None."""
    found = [session for session in sessions if last is None or session.at > last]
    return sorted(found, key=lambda session: session.at, reverse=True)
