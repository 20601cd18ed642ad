"""Names in rules: the tools that exist, and patterns of host names and agent types."""

import re

import attrs

TOOL_NAMES = (
    *("Read", "Write", "Edit", "NotebookEdit", "Grep", "Glob", "Bash", "BashOutput", "KillBash"),
    *("SearchTranscript", "SendMessage", "TaskCreate", "TaskList", "TaskClaim", "TaskUpdate"),
    *("Agent", "TaskStop", "ExitPlanMode", "Skill", "WebFetch"),
)
"""Names of all tools, in the order of a request: those of `BUILT_IN` first. Written out, so that reading rules and
definitions imports no tool; a test compares them with the tools."""

DOMAIN_EXAMPLE = "WebFetch(domain:example.org)"

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


AGENT_TYPE_EXAMPLE = "Agent(reviewer)"


@attrs.frozen
class AgentTypePattern:
    """Some kinds, by name."""

    agent_types: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> "AgentTypePattern":
        """Read what stands between the brackets. Raises `ValueError`."""
        kinds = frozenset(kind.strip() for kind in text.split(","))
        if "" in kinds:
            raise ValueError("a rule for agents names their kinds, with a comma between two")
        return cls(kinds)

    def covers(self, kind: str) -> bool:
        """Whether an agent of this *kind* is meant."""
        return kind in self.agent_types
