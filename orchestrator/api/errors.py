"""Errors of the Python API, by the moment at which they occur.

AgentError
├── ConfigInvalid       what was given cannot be used, and no session was begun or taken up (`coterie.errors`)
│   └── TeamInvalid     the file of a team, with every flaw of it, by line (`coterie.orchestrator.teams.team_tables`)
└── SessionError        a session that was open; `session` is its id
    ├── SessionFailed   it has ended without a result: it could not go on, or was killed
    ├── SessionOver     it does not run any more, so that nothing can be asked of it
    └── RequestRefused  it runs, and what was asked of it cannot be
"""

from typing import Literal

import attrs

from coterie.errors import AgentError

RequestName = Literal["send", "spawn", "decide", "stop"]


@attrs.define(eq=False)
class SessionError(AgentError):
    """Something went wrong with a session that was open."""

    session: str
    """Its id."""
    reason: str
    """What is wrong, in one line."""

    def __str__(self) -> str:
        return f"session {self.session}: {self.reason}"


class SessionFailed(SessionError):
    """It has ended before its lead could say what came of the task. It can be opened again."""


class SessionOver(SessionError):
    """It does not run any more."""


@attrs.define(eq=False)
class RequestRefused(SessionError):
    """What was asked of it was not done."""

    asked: RequestName
    subject: str
    """Of whom or what: an agent's name, or the id of an approval."""

    def __str__(self) -> str:
        return f"session {self.session}: {self.asked} {self.subject!r}: {self.reason}"
