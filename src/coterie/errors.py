"""Errors and helpers for exceptions that all packages share."""

import attrs


def first_exception(error: BaseException) -> BaseException:
    """*error*, or the first in it that is no group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class AgentError(Exception):
    """Base of everything `coterie.agents` raises on purpose."""


@attrs.define(eq=False)
class ConfigInvalid(AgentError):
    """Something the user wrote cannot be used."""

    source: str
    """Where it stands: a file, a flag or an environment variable."""
    reason: str
    """What is wrong and what would be right, in one line."""

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"
