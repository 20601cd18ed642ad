"""Base classes of errors, and a helper for exception groups, which all packages of Coterie share."""

import attrs


def first_exception(error: BaseException) -> BaseException:
    """Return *error* itself, or if *error* is an exception group, the first exception inside that is not a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@attrs.define(eq=False)
class ReasonError(Exception):
    """Base class of errors whose whole message is one line of text, the `reason`."""

    reason: str
    """One line that says what is wrong."""

    def __str__(self) -> str:
        return self.reason


class AgentError(Exception):
    """Base class of the errors that `coterie.agents` and the Python API raise deliberately, such as `ConfigInvalid`."""


@attrs.define(eq=False)
class ConfigInvalid(AgentError):
    """Input of the user cannot be used: a file, flag, environment variable, or a name such as an unknown session."""

    source: str
    """Origin of the invalid value: a file, flag or environment variable, or its subject, such as `session`."""
    reason: str
    """One line that says what is wrong and how to fix it."""

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"
