"""Names that rules use: the existing tools, and patterns of host names and agent types."""

import re

import attrs

TOOL_NAMES = (
    *("Read", "Write", "Edit", "NotebookEdit", "Grep", "Glob", "Bash", "BashOutput", "KillBash"),
    *("SearchTranscript", "SendMessage", "TaskCreate", "TaskList", "TaskClaim", "TaskUpdate"),
    *("Agent", "TaskStop", "ExitPlanMode", "Skill", "WebFetch"),
)
"""Names of all tools except MCP tools, in the order in which requests contain them.

Listed here so that parsing rules and definitions imports no tool; a test compares the list with the tools.
"""

_PATTERN = re.compile(r"domain:\s*((?:\*\.)?[A-Za-z0-9_.-]+|\[?[0-9A-Fa-f:.]+\]?|\*)")


@attrs.frozen
class DomainPattern:
    """Pattern in a WebFetch rule: one host, all hosts below a domain (`*.example.org`), or all hosts (`*`)."""

    host: str

    @classmethod
    def parse(cls, text: str) -> "DomainPattern":
        """Parse the text in the brackets of a rule, such as `domain:example.org`. Raises `ValueError`."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise ValueError("a rule for web pages needs `domain:` and a host in its brackets")
        return cls(match[1].strip("[]").lower().rstrip("."))

    def covers(self, host: str) -> bool:
        """True if the pattern matches *host*. A name without wildcard matches this host only, not its subdomains."""
        return self.host in (host, "*") or (self.host.startswith("*.") and host.endswith(self.host[1:]))


@attrs.frozen
class AgentTypePattern:
    """Pattern in an Agent rule: the names of the agent types that it matches."""

    agent_types: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> "AgentTypePattern":
        """Parse the text in the brackets of a rule: agent types, separated by commas. Raises `ValueError`."""
        agent_types = frozenset(agent_type.strip() for agent_type in text.split(","))
        if "" in agent_types:
            raise ValueError("an Agent rule has an empty name in its brackets; separate agent types by commas")
        return cls(agent_types)

    def covers(self, agent_type: str) -> bool:
        """True if *agent_type* is one of the agent types of the pattern."""
        return agent_type in self.agent_types
