"""Permission rules as the user writes them, such as `Bash(git status:*)`, and the tool calls that they match."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import attrs

from coterie.agents.mcp.tool_names import PREFIX, any_matches_tool, matches_tool
from coterie.agents.permissions.commands.command_parser import CommandLine, SimpleCommand, parse_command
from coterie.agents.permissions.commands.command_pattern import CommandPattern, opaque_reason
from coterie.agents.permissions.name_patterns import TOOL_NAMES, AgentTypePattern, DomainPattern
from coterie.agents.permissions.path_pattern import PathPattern
from coterie.agents.tools.shell.bash import BashInput
from coterie.agents.tools.tool import Tool, Workspace
from coterie.agents.tools.web.hosts import WebAddress
from coterie.agents.tools.web.web_fetch import WebFetch, WebFetchInput
from coterie.errors import ConfigInvalid

EVERY_TOOL = "*"
AGENT = "Agent"

_RULE = re.compile(r"(\*|mcp__[A-Za-z0-9_-]+\*?|[A-Za-z_][A-Za-z0-9_-]*)(?:\((.*)\))?", re.DOTALL)
Subject = CommandPattern | PathPattern | DomainPattern | AgentTypePattern
"""Pattern that restricts a rule to some calls of its tool."""
_EXAMPLES = {
    "Bash": "Bash(git status:*)",
    "Edit": "Edit(src/**)",
    WebFetch.name: "WebFetch(domain:example.org)",
    AGENT: "Agent(reviewer)",
}
_FAMILIES = {"read": "Read", "edit": "Edit"}
"""Kind of access to files, and the tool whose rules apply to all tools with this access."""


@attrs.frozen(kw_only=True)
class ToolCallFacts:
    """Facts about one tool call, with which permission rules are compared."""

    tool: Tool
    arguments: attrs.AttrsInstance
    root: Path
    command: CommandLine | None
    """Parsed command line of a Bash call; None for other tools."""
    paths: tuple[Path, ...]
    """All paths that the call affects, for a tool that reads or edits files; empty for other tools."""
    host: str | None = None
    """Host from which a WebFetch call loads a page; None for other tools."""
    agent_type: str | None = None
    """Agent type that an Agent call starts; None for other tools."""

    @classmethod
    def of(cls, tool: Tool, arguments: Any, workspace: Workspace) -> Self:
        """Collect the facts of a call before it runs. Raises `ToolFailed` if a path or URL argument is invalid."""
        return cls(
            tool=tool,
            arguments=arguments,
            root=workspace.root.resolve(),
            command=parse_command(arguments.command) if isinstance(arguments, BashInput) else None,
            paths=() if tool.access == "run" else tuple(tool.paths_affected(arguments, workspace)),
            host=WebAddress.parse(arguments.url).host if isinstance(arguments, WebFetchInput) else None,
            agent_type=getattr(arguments, "subagent_type", None) if tool.name == AGENT else None,
        )


@attrs.frozen(kw_only=True)
class Rule:
    """Rule that matches some or all calls of a tool. The settings list with the rule decides if it allows, asks or
    denies.
    """

    tool: str
    subject: Subject | None = None
    """Pattern of the calls that match; None if every call of the tool matches."""
    text: str
    """Text of the rule, as the user wrote it or a prompt proposed it."""

    @classmethod
    def parse(cls, text: str, source: str) -> Self:
        """Parse `Tool`, `Bash(words:*)`, `WebFetch(domain:host)`, `Agent(type)` or `Tool(path)`.

        *source* is the file or flag with the rule, for errors. Raises `ConfigInvalid`.
        """
        match = _RULE.fullmatch(text.strip())
        if match is None:
            examples = f"Read, {_EXAMPLES['Bash']} or {_EXAMPLES['Edit']}"
            raise ConfigInvalid(source, f"{text!r} is not a rule; write a tool, or a tool with a pattern: {examples}")
        tool, subject = match.groups()
        known_name = next((known for known in TOOL_NAMES if known.casefold() == tool.casefold()), tool)
        if known_name != tool:
            raise ConfigInvalid(source, f"{text!r} names an unknown tool; did you mean {known_name!r}?")
        try:
            return cls(tool=tool, subject=_subject(tool, subject), text=text.strip())
        except ValueError as exc:
            example = _EXAMPLES.get(tool, _EXAMPLES["Edit"])
            raise ConfigInvalid(source, f"{text!r} is not a valid rule: {exc}; write for example {example}") from exc

    def names(self, call: ToolCallFacts) -> bool:
        """True if the rule, which matches *call*, names its command, path or host exactly, or the call has none."""
        if isinstance(self.subject, CommandPattern):
            return not self.subject.is_open
        if isinstance(self.subject, PathPattern):
            return any(self.subject.is_exactly(path, call.root) for path in call.paths)
        if isinstance(self.subject, DomainPattern):
            return self.subject.host == call.host
        if isinstance(self.subject, AgentTypePattern):
            return self.subject.agent_types == {call.agent_type}
        return call.command is None and not call.paths and call.host is None

    def may_be(self, call: ToolCallFacts) -> bool:
        """True if *call*, or any part of it, may match; that is enough for a rule that denies or asks."""
        if not self.is_for(call):
            return False
        if isinstance(self.subject, CommandPattern):
            return call.command is not None and self.subject.may_be_in(call.command)
        if isinstance(self.subject, DomainPattern | AgentTypePattern):
            return self.covers_name(call)
        pattern = self.subject
        return pattern is None or any(pattern.may_be_in(path, call.root) for path in call.paths)

    def covers_command(self, command: SimpleCommand) -> bool:
        """True if the rule certainly matches *command*, as an allow rule must."""
        return isinstance(self.subject, CommandPattern) and self.subject.covers(command)

    def covers_path(self, path: Path, call: ToolCallFacts) -> bool:
        """True if the rule certainly matches *path*, one of the paths of *call*, as an allow rule must."""
        return isinstance(self.subject, PathPattern) and self.is_for(call) and self.subject.covers(path, call.root)

    def covers_name(self, call: ToolCallFacts) -> bool:
        """True if the rule matches the host that *call* fetches from, or the agent type that it starts."""
        if isinstance(self.subject, DomainPattern):
            return call.host is not None and self.subject.covers(call.host)
        if isinstance(self.subject, AgentTypePattern):
            return call.agent_type is not None and self.subject.covers(call.agent_type)
        return False

    def is_for(self, call: ToolCallFacts) -> bool:
        """True if the rule is for the tool of *call*; `Read` and `Edit` rules are for all tools that read or edit
        files.
        """
        family = _FAMILIES.get(call.tool.access) if call.paths else None
        return self.tool in (EVERY_TOOL, call.tool.name, family) or matches_tool(self.tool, call.tool.name)


def matching_rules(rules: Sequence[Rule], call: ToolCallFacts) -> list[Rule]:
    """Return rules that together certainly cover all parts of *call* and so allow it; empty if there are none."""
    if unrestricted := next((rule for rule in rules if rule.subject is None and rule.is_for(call)), None):
        return [unrestricted]
    if call.command is not None:
        return _matching_command_rules(rules, call.command)
    if call.host is not None or call.agent_type is not None:
        return [rule for rule in rules if rule.covers_name(call)][:1]
    found = [next((rule for rule in rules if rule.covers_path(path, call)), None) for path in call.paths]
    return [] if None in found else [rule for rule in dict.fromkeys(found) if rule is not None]


def _matching_command_rules(rules: Sequence[Rule], line: CommandLine) -> list[Rule]:
    if opaque_reason(line) is not None or line.substituted:
        return []
    found: dict[Rule, None] = {}
    for command in line.commands:
        if not command.words and command.is_plain:
            continue
        rule = next((rule for rule in rules if rule.covers_command(command)), None)
        if rule is None:
            return []
        found[rule] = None
    return list(found)


def _subject(tool: str, text: str | None) -> Subject | None:
    if text is None:
        return None
    if tool == EVERY_TOOL:
        raise ValueError("a rule for every tool cannot have a pattern; remove the brackets")
    if tool.startswith(PREFIX):
        raise ValueError("a rule for the tools of a server cannot have a pattern; remove the brackets")
    if not text.strip():
        raise ValueError("the brackets of the rule are empty; remove them")
    if tool == "Bash":
        return None if text.strip() == "*" else CommandPattern.parse(text.strip())
    if tool == WebFetch.name:
        return None if text.strip() == "*" else DomainPattern.parse(text.strip())
    if tool == AGENT:
        return None if text.strip() == "*" else AgentTypePattern.parse(text)
    return PathPattern.parse(text.strip())


@attrs.frozen(kw_only=True)
class RoleLimit:
    """Limit on the tools of one agent, by its agent type or approved plan. It does not apply to its child agents."""

    name: str
    reason: str
    """Reason why a call is denied by this limit, as a text for the model."""
    allowed: frozenset[str] | None = None
    """The only tools that the agent may use: names, or patterns such as `mcp__github`; None for all tools."""
    denied: frozenset[str] = frozenset()
    only: tuple[Rule, ...] = ()
    """Rules for some tools. If a tool has such rules, the agent may make only the calls that match them."""

    def denies(self, call: ToolCallFacts) -> bool:
        """True if the limit forbids *call*."""
        name = call.tool.name
        if EVERY_TOOL in self.denied or any_matches_tool(self.denied, name):
            return True
        if self.allowed is not None and not any_matches_tool(self.allowed, name):
            return True
        rules = [rule for rule in self.only if rule.tool == name]
        return bool(rules) and not matching_rules(rules, call)
