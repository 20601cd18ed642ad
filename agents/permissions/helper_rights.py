"""Permissions of a helper that reads and writes files."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import attrs

from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.commands.command_line import CommandLine
from coterie.agents.permissions.commands.read_only_commands import write_reason
from coterie.agents.permissions.commands.shell_word import ShellWord
from coterie.agents.permissions.permissions import Permissions
from coterie.agents.permissions.protected_paths import is_inside
from coterie.agents.permissions.rules import ToolCallFacts
from coterie.agents.tools.tool import JOBS_DIRECTORY, RESULTS_DIRECTORY, Tool, Workspace

NULL = Path("/dev/null")


@attrs.frozen(kw_only=True)
class HelperRights:
    """Reading in the project and a few other places, commands that only read there, and writing in a few places."""

    readable: tuple[Path, ...] = ()
    """Directories besides the project's, and those it may write in."""
    writable: tuple[Path, ...]
    authority: Authorizer | None = None
    """The agent's: what its rules deny is denied to the helper too."""

    reading: ClassVar = frozenset({"Read", "Grep", "Glob"})
    writing: ClassVar = frozenset({"Write", "Edit"})

    async def denial(self, tool: Tool, arguments: Any, workspace: Workspace) -> str | None:
        """As `Denial`; it asks nobody. Raises `ToolFailed` as `paths_affected` does."""
        call = ToolCallFacts.of(tool, arguments, workspace)
        if rule := self._denying_rule(call):
            return f"The rule {rule} denies this call."
        if tool.name in self.reading:
            return self._outside(call.paths, self._places(workspace), "read")
        if tool.name in self.writing:
            return self._outside(call.paths, self.writable, "write")
        if call.command is not None:
            return self._command_denial(call.command, workspace)
        return f"{tool.name} cannot be used here. There are {', '.join(sorted(self.reading | self.writing))} and Bash."

    def _denying_rule(self, call: ToolCallFacts) -> str | None:
        permissions: Permissions | None = None if self.authority is None else self.authority.permissions
        while permissions is not None:
            if rule := next((rule for rule in permissions.deny if rule.may_be(call)), None):
                return rule.text
            permissions = permissions.parent
        return None

    def _places(self, workspace: Workspace) -> tuple[Path, ...]:
        kept = (workspace.scratch / RESULTS_DIRECTORY, workspace.scratch / JOBS_DIRECTORY)
        return (workspace.root, *kept, *self.readable, *self.writable)

    def _outside(self, paths: Iterable[Path], places: tuple[Path, ...], what: str) -> str | None:
        if path := next((path for path in paths if not any(is_inside(path, place) for place in places)), None):
            return f"You may {what} only below {', '.join(map(str, places))}; {path} is outside."
        return None

    def _command_denial(self, line: CommandLine, workspace: Workspace) -> str | None:
        if reason := write_reason(line):
            return f"Only commands that surely read and nothing else can be run here, and this has {reason}."
        places = (*self._places(workspace), NULL)
        for word in _arguments(line):
            if (path := _path_of(word, workspace)) is None:
                return f"Where {word.raw} leads cannot be told before it runs. Write the path out, or use another tool."
            if reason := self._outside([path], places, "read"):
                return reason
        return None


def _arguments(line: CommandLine) -> Iterator[ShellWord]:
    """What the commands are given, and where their input comes from."""
    for command in (*line.commands, *line.substituted):
        yield from command.words[1:]
        yield from (redirection.target for redirection in command.redirections if redirection.operator == "<")


def _path_of(word: ShellWord, workspace: Workspace) -> Path | None:
    """The path that *word* is, if it is one; None if that cannot be told."""
    text = word.text if word.is_literal else word.raw
    if text.startswith("-"):
        option, _, text = text.partition("=")
        if "/" in option or ".." in option:  # a path may stand right behind the letter of an option
            return None
    if not word.is_literal and not _is_pattern(word):
        return None
    directory = workspace.shell.directory
    try:
        return (directory / text).resolve() if word.is_literal else _beginning(directory, text)
    except (OSError, ValueError, RuntimeError):  # RuntimeError: links that lead round in a circle
        return None


def _is_pattern(word: ShellWord) -> bool:
    """Whether nothing in *word* is left open but which files match it."""
    return not any(sign in word.raw for sign in "~$`'\"\\")


def _beginning(directory: Path, pattern: str) -> Path | None:
    """The directory that all which *pattern* matches is below; None if there is no such."""
    parts = Path(pattern).parts
    fixed = next((number for number, part in enumerate(parts) if any(sign in part for sign in "*?[{")), len(parts))
    return None if ".." in parts[fixed:] else directory.joinpath(*parts[:fixed]).resolve()
