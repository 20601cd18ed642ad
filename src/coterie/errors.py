"""Errors and helpers for exceptions that all packages share."""

import attrs


def first_exception(error: BaseException) -> BaseException:
    """Return *error*, or the first exception inside it that is not a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@attrs.define(eq=False)
class ReasonError(Exception):
    """Base class of errors with one line of text."""

    reason: str
    """One line that says what is wrong."""

    def __str__(self) -> str:
        return self.reason


class AgentError(Exception):
    """Base class of the errors that `coterie.agents` raises deliberately."""


@attrs.define(eq=False)
class ConfigInvalid(AgentError):
    """A file, flag or variable of the user is invalid."""

    source: str
    """Origin of the value: a file, a flag or an environment variable."""
    reason: str
    """One line that says what is wrong and how to fix it."""

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"
