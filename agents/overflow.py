"""What the API says of a prompt that is too long."""

import re

import attrs

from coterie.agents.errors import ModelError, ModelRefusedRequest

_TOO_LONG = re.compile(r"prompt is too long(?:: (\d+) tokens > (\d+) maximum)?")


@attrs.frozen(kw_only=True)
class Overflow:
    """How long a prompt was, and how long it may be, in tokens; None for what was not said."""

    actual: int | None = None
    most: int | None = None

    @classmethod
    def read(cls, error: ModelError) -> "Overflow | None":
        """None if *error* says something else."""
        found = _TOO_LONG.match(error.message) if isinstance(error, ModelRefusedRequest) else None
        if found is None:
            return None
        actual, most = found.groups()
        return cls(actual=int(actual) if actual else None, most=int(most) if most else None)
