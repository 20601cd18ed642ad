"""What the API says of a prompt that is too long, or holds too much to look at."""

import re

import attrs

from coterie.agents.errors import ModelError, ModelRefusedRequest

_TOO_MUCH_TO_SEE = re.compile(r"A maximum of \d+ PDF pages may be provided")
_TOO_LARGE = 413
"""The status of a request over 32 MB, which no text in any window has."""
_TOO_LONG = re.compile(r"prompt is too long(?:: (\d+) tokens > (\d+) maximum)?")


@attrs.frozen(kw_only=True)
class Overflow:
    """How long a prompt was, and how long it may be, in tokens; None for what was not said."""

    actual: int | None = None
    most: int | None = None
    is_media: bool = False
    """Whether it is not the text that is too long, but what stands beside it: pictures and pages."""

    @classmethod
    def read(cls, error: ModelError) -> "Overflow | None":
        """None if *error* says something else."""
        if not isinstance(error, ModelRefusedRequest):
            return None
        if error.status == _TOO_LARGE or _TOO_MUCH_TO_SEE.match(error.message):
            return cls(is_media=True)
        found = _TOO_LONG.match(error.message)
        if found is None:
            return None
        actual, most = found.groups()
        return cls(actual=int(actual) if actual else None, most=int(most) if most else None)
