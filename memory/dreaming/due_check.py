"""Check whether a dream is due; the cheapest condition comes first."""

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
    """A session of the project, and the time of its last activity."""

    directory: Path
    at: float


@attrs.define(eq=False)
class DueCheck:
    """The conditions for a dream of one store; remembers the time of the last session scan.

    The lock against another running dream is not checked here, but acquired later.
    """

    directory: Path
    sessions: Callable[[], Sequence[SessionActivity]]
    """Function that lists the sessions of the project; blocks."""
    settings: DreamingSettings
    clock: Clock
    last: float | None = attrs.field(default=None, init=False)
    """Time of the last known dream; None if there was no dream."""
    _scanned: float | None = attrs.field(default=None, init=False)

    def reason_not_due(self) -> str | None:
        """Return one line with the reason why no dream is due; None if one is due.

        Blocks. Raises `DreamRefused` and `OSError`.
        """
        last = self.last = last_dream_time(self.directory, self.clock)
        now = self.clock.now()
        if last is not None and now - last < self.settings.hours * HOUR:
            return f"the last dream was {(now - last) / HOUR:.1f} hours ago; the minimum is {self.settings.hours:g}"
        if self._scanned is not None and 0 <= now - self._scanned < self.settings.scan_minutes * MINUTE:
            return f"the sessions were counted {(now - self._scanned) / MINUTE:.0f} minutes ago"
        self._scanned = now
        count = len(active_since(self.sessions(), last))
        if count < self.settings.sessions:
            return f"{count} sessions were touched since the last dream; {self.settings.sessions} are needed"
        return None


def active_since(sessions: Sequence[SessionActivity], last: float | None) -> list[SessionActivity]:
    """Return the *sessions* with activity after *last*, newest first; all sessions without *last*."""
    found = [session for session in sessions if last is None or session.at > last]
    return sorted(found, key=lambda session: session.at, reverse=True)
