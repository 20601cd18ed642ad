"""Errors of the Python API.

AgentError
├── ConfigInvalid       an argument or a file is invalid; no session was started (`coterie.errors`)
│   └── TeamInvalid     problems of a team file, by line (`coterie.orchestrator.teams.team_file`)
└── SessionError        an error of an open session; `session` is its id
    ├── SessionFailed   the session ended without a result: it failed or was killed
    ├── SessionOver     the session has ended and accepts no requests
    └── RequestRefused  the session is running and refused the request
"""

from typing import Literal

import attrs

from coterie.errors import AgentError

RequestName = Literal["send", "spawn", "decide", "stop"]


@attrs.define(eq=False)
class SessionError(AgentError):
    """Base of the errors of an open session."""

    session: str
    """Session id."""
    reason: str
    """Description of the error, in one line."""

    def __str__(self) -> str:
        return f"session {self.session}: {self.reason}"


class SessionFailed(SessionError):
    """The session ended before its lead finished the task. It can be resumed."""


class SessionOver(SessionError):
    """The session has ended."""


@attrs.define(eq=False)
class RequestRefused(SessionError):
    """The session refused a request."""

    asked: RequestName
    subject: str
    """Subject of the request: the name of an agent, or the id of an approval."""

    def __str__(self) -> str:
        return f"session {self.session}: {self.asked} {self.subject!r}: {self.reason}"
