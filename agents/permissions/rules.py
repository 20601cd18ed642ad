"""Rules: which calls are meant, written as people write them in settings."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import attrs

from coterie.agents.errors import ConfigInvalid
from coterie.agents.mcp.naming import PREFIX, means
from coterie.agents.permissions import command_pattern, domain_pattern, kind_pattern, path_pattern
from coterie.agents.permissions.command_line import CommandLine, SimpleCommand
from coterie.agents.permissions.command_pattern import CommandPattern
from coterie.agents.permissions.domain_pattern import DomainPattern
from coterie.agents.permissions.kind_pattern import KindPattern
from coterie.agents.permissions.path_pattern import PathPattern
from coterie.agents.permissions.shell import read_command
from coterie.agents.permissions.wrappers import obscurity
from coterie.agents.tools import NAMES
from coterie.agents.tools.bash import BashInput
from coterie.agents.tools.tool import Tool, Workspace
from coterie.agents.tools.web_fetch import WebFetch, WebFetchInput
from coterie.agents.web.hosts import WebAddress

EVERY_TOOL = "*"
AGENT = "Agent"

_RULE = re.compile(r"(\*|mcp__[A-Za-z0-9_-]+\*?|[A-Za-z_][A-Za-z0-9_-]*)(?:\((.*)\))?", re.DOTALL)
Subject = CommandPattern | PathPattern | DomainPattern | KindPattern
"""What some calls of a tool are about."""
_EXAMPLES = {"Bash": command_pattern.EXAMPLE, WebFetch.name: domain_pattern.EXAMPLE, AGENT: kind_pattern.EXAMPLE}
_FAMILIES = {"read": "Read", "edit": "Edit"}
"""Rules for these tools are for all tools that do the same to files."""


@attrs.frozen(kw_only=True)
class Call:
    """One call of a tool, as rules see it."""

    tool: Tool
    arguments: attrs.AttrsInstance
    root: Path
    command: CommandLine | None
    """What it would run, for a call of Bash."""
    paths: tuple[Path, ...]
    """Every path it touches, for a tool that reads or edits."""
    host: str | None = None
    """Whom it would ask, for a call of WebFetch."""
    kind: str | None = None
    """Of which kind the agent would be, for a call that starts one."""

    @classmethod
    def of(cls, tool: Tool, arguments: Any, workspace: Workspace) -> Self:
        """Look at a call before it is made. Raises `ToolFailed` as `touches` does."""
        return cls(
            tool=tool,
            arguments=arguments,
            root=workspace.root.resolve(),
            command=read_command(arguments.command) if isinstance(arguments, BashInput) else None,
            paths=() if tool.access == "run" else tuple(tool.touches(arguments, workspace)),
            host=WebAddress.parse(arguments.url).host if isinstance(arguments, WebFetchInput) else None,
            kind=getattr(arguments, "subagent_type", None) if tool.name == AGENT else None,
        )


@attrs.frozen(kw_only=True)
class Rule:
    """Some calls of a tool, or all of them. Whether they are allowed, asked for or denied is said elsewhere."""

    tool: str
    subject: Subject | None = None
    """What the calls are about; None for every call."""
    text: str
    """As it was written."""

    @classmethod
    def parse(cls, text: str, source: str) -> Self:
        """Read `Tool`, `Bash(words:*)`, `WebFetch(domain:host)`, `Agent(kind)` or `Tool(path)`.

        *source* says where it stands. Raises `ConfigInvalid`.
        """
        match = _RULE.fullmatch(text.strip())
        if match is None:
            examples = f"Read, {command_pattern.EXAMPLE} or {path_pattern.EXAMPLE}"
            raise ConfigInvalid(source, f"{text!r} is not a rule; write a tool, or a tool and what for: {examples}")
        tool, subject = match.groups()
        meant = next((known for known in NAMES if known.casefold() == tool.casefold()), tool)
        if meant != tool:
            raise ConfigInvalid(source, f"{text!r} names a tool that is called {meant}, with these capitals")
        try:
            return cls(tool=tool, subject=_subject(tool, subject), text=text.strip())
        except ValueError as exc:
            example = _EXAMPLES.get(tool, path_pattern.EXAMPLE)
            raise ConfigInvalid(source, f"{text!r} cannot be used: {exc}; a rule looks like {example}") from exc

    def names(self, call: Call) -> bool:
        """Whether it says no more than *call* does: one command, or one path; not a kind of them."""
        if isinstance(self.subject, CommandPattern):
            return not self.subject.is_open
        if isinstance(self.subject, PathPattern):
            return any(self.subject.is_exactly(path, call.root) for path in call.paths)
        if isinstance(self.subject, DomainPattern):
            return self.subject.host == call.host
        if isinstance(self.subject, KindPattern):
            return self.subject.kinds == {call.kind}
        return call.command is None and not call.paths and call.host is None

    def may_be(self, call: Call) -> bool:
        """Whether *call*, or any part of it, may be what the rule means: enough to deny it, or to ask."""
        if not self._is_for(call):
            return False
        if isinstance(self.subject, CommandPattern):
            return call.command is not None and self.subject.may_be_in(call.command)
        if isinstance(self.subject, DomainPattern):
            return self.covers_host(call)
        if isinstance(self.subject, KindPattern):
            return self.covers_kind(call)
        pattern = self.subject
        return pattern is None or any(pattern.may_be_in(path, call.root) for path in call.paths)

    def covers_command(self, command: SimpleCommand) -> bool:
        """Whether the rule surely means *command*."""
        return isinstance(self.subject, CommandPattern) and self.subject.covers(command)

    def covers_path(self, path: Path, call: Call) -> bool:
        """Whether the rule surely means *path* in *call*."""
        return isinstance(self.subject, PathPattern) and self._is_for(call) and self.subject.covers(path, call.root)

    def covers_host(self, call: Call) -> bool:
        """Whether the rule means the host that *call* asks."""
        return isinstance(self.subject, DomainPattern) and call.host is not None and self.subject.covers(call.host)

    def covers_kind(self, call: Call) -> bool:
        """Whether the rule means the kind of agent that *call* starts."""
        return isinstance(self.subject, KindPattern) and call.kind is not None and self.subject.covers(call.kind)

    def covers_all(self, call: Call) -> bool:
        """Whether the rule means every call of this tool."""
        return self.subject is None and self._is_for(call)

    def _is_for(self, call: Call) -> bool:
        family = _FAMILIES.get(call.tool.access) if call.paths else None
        return self.tool in (EVERY_TOOL, call.tool.name, family) or means(self.tool, call.tool.name)


def covering(rules: Sequence[Rule], call: Call) -> list[Rule]:
    """The rules that together surely mean all of *call*; empty if some part of it is left over."""
    if whole := next((rule for rule in rules if rule.covers_all(call)), None):
        return [whole]
    if call.command is not None:
        return _covering_commands(rules, call.command)
    if call.host is not None:
        return [rule for rule in rules if rule.covers_host(call)][:1]
    if call.kind is not None:
        return [rule for rule in rules if rule.covers_kind(call)][:1]
    found = [next((rule for rule in rules if rule.covers_path(path, call)), None) for path in call.paths]
    return [] if None in found else [rule for rule in dict.fromkeys(found) if rule is not None]


def _covering_commands(rules: Sequence[Rule], line: CommandLine) -> list[Rule]:
    if obscurity(line) is not None or line.substituted:
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
        raise ValueError("a rule for every tool cannot say what for")
    if tool.startswith(PREFIX):
        raise ValueError("a rule for the tools of a server cannot say what for")
    if not text.strip():
        raise ValueError("there is nothing between the brackets")
    if tool == "Bash":
        return None if text.strip() == "*" else CommandPattern.parse(text.strip())
    if tool == WebFetch.name:
        return None if text.strip() == "*" else DomainPattern.parse(text.strip())
    if tool == AGENT:
        return None if text.strip() == "*" else KindPattern.parse(text)
    return PathPattern.parse(text.strip())
