"""Exceptions that the Python API raises, as a tree.

AgentError              base of all exceptions of Coterie
├── ConfigInvalid       an argument or a file is invalid; nothing was started or sent (`coterie.errors`)
│   └── TeamInvalid     problems of a team file, each with its line (`coterie.orchestrator.teams.team_file`)
└── SessionError        base of the errors of one session; its attribute `session` is the session id
    ├── SessionFailed   the session could not start, or ended without a result
    ├── SessionOver     a request could not be sent, because the session has ended
    └── RequestRefused  a request was refused; the session continues
"""

from typing import Literal

import attrs

from coterie.errors import AgentError

RequestName = Literal["send", "spawn", "decide", "stop"]


@attrs.define(eq=False)
class SessionError(AgentError):
    """Base class of the errors that concern one session, such as a failed start or a refused request."""

    session: str
    """Session id; "(none)" if the start of a new session failed."""
    reason: str
    """Cause of the error, in one line."""

    def __str__(self) -> str:
        return f"session {self.session}: {self.reason}"


class SessionFailed(SessionError):
    """The session could not start, or its processes ended before the lead (first agent) finished the task."""


class SessionOver(SessionError):
    """A method of `LiveSession` could not reach the session, because the session has ended."""


@attrs.define(eq=False)
class RequestRefused(SessionError):
    """A request to a session, such as to stop an agent, was refused and had no effect; the session continues."""

    asked: RequestName
    subject: str
    """Target of the request: an agent's name or type, the address of another session, or the id of an approval."""

    def __str__(self) -> str:
        return f"session {self.session}: request `{self.asked}` for {self.subject!r} was refused: {self.reason}"
