"""Hosts that a rule means: `domain:example.org`, and with `*.` those below it."""

import re

import attrs

EXAMPLE = "WebFetch(domain:example.org)"

_PATTERN = re.compile(r"domain:\s*((?:\*\.)?[A-Za-z0-9_.-]+|\[?[0-9A-Fa-f:.]+\]?|\*)")


@attrs.frozen
class DomainPattern:
    """One host, or all below one."""

    host: str

    @classmethod
    def parse(cls, text: str) -> "DomainPattern":
        """Read what stands between the brackets. Raises `ValueError`."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise ValueError("a rule for pages says which host: domain: and its name")
        return cls(match[1].strip("[]").lower().rstrip("."))

    def covers(self, host: str) -> bool:
        """Whether *host* is meant. A name alone means that host, and none below it."""
        return self.host in (host, "*") or (self.host.startswith("*.") and host.endswith(self.host[1:]))
