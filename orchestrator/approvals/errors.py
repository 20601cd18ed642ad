"""What is not done about an approval.

AgentError
├── AnswerInvalid   an answer that does not count, and changes nothing
└── NotAsked        a request that could not be kept, so nobody was asked
"""

import attrs

from coterie.agents.errors import AgentError


@attrs.define(eq=False)
class AnswerInvalid(AgentError):
    """Who gave the answer may not, or there is nothing to answer."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.define(eq=False)
class NotAsked(AgentError):
    """The disk did not take the request."""

    reason: str

    def __str__(self) -> str:
        return self.reason
