"""Token usage of model calls, as the API reports it."""

from collections.abc import Mapping
from typing import Any, Literal

import attrs

Ttl = Literal["5m", "1h"]
"""Time to live of a prompt cache entry, which decides the price for writing it."""


@attrs.frozen(kw_only=True)
class Usage:
    """Token counts of one or more model calls, one count for each price. Adding two objects adds the counts."""

    input: int = 0
    """Input tokens that were neither read from nor written to the prompt cache, at the normal price."""
    read: int = 0
    """Input tokens read from the prompt cache."""
    write_5m: int = 0
    """Input tokens written to the prompt cache with a time to live of five minutes."""
    write_1h: int = 0
    """Input tokens written to the prompt cache with a time to live of one hour."""
    output: int = 0

    @property
    def prompt(self) -> int:
        """All input tokens of the call: normal ones, and those read from or written to the cache."""
        return self.input + self.read + self.write_5m + self.write_1h

    @property
    def total(self) -> int:
        """All input and output tokens: the size of the context at the end of the call."""
        return self.prompt + self.output

    def __add__(self, other: "Usage") -> "Usage":
        names = attrs.fields_dict(Usage)
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @classmethod
    def from_api(cls, usage: Mapping[str, Any]) -> "Usage":
        """Create the counts from the `usage` object of an API reply; a missing or null field counts as zero."""
        split = usage.get("cache_creation") or {}
        created = usage.get("cache_creation_input_tokens") or 0
        write_1h = split.get("ephemeral_1h_input_tokens") or 0
        return cls(
            input=usage.get("input_tokens") or 0,
            read=usage.get("cache_read_input_tokens") or 0,
            # Without the split, the whole write has the default time to live.
            write_5m=split.get("ephemeral_5m_input_tokens", created - write_1h) or 0,
            write_1h=write_1h,
            output=usage.get("output_tokens") or 0,
        )
