"""Rights of a helper: a background model call of an agent, such as the one that saves memories."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import attrs

from coterie.agents.permissions.authorizer import Authorizer
from coterie.agents.permissions.commands.command_parser import CommandLine
from coterie.agents.permissions.commands.read_only_commands import write_reason
from coterie.agents.permissions.commands.shell_word import ShellWord
from coterie.agents.permissions.path_pattern import is_inside
from coterie.agents.permissions.rules import ToolCallFacts
from coterie.agents.tools.tool import JOBS_DIRECTORY, RESULTS_DIRECTORY, Tool, Workspace


@attrs.frozen(kw_only=True)
class HelperRights:
    """Rights of a helper: it may read the project and some directories, also by commands, and write in a few."""

    readable: tuple[Path, ...] = ()
    """Directories that the helper may read, in addition to the project, stored tool and job results, and *writable*."""
    writable: tuple[Path, ...]
    authority: Authorizer | None = None
    """Authorizer of the agent, whose deny rules apply to its helper too; None to apply no rules."""

    reading: ClassVar = frozenset({"Read", "Grep", "Glob"})
    writing: ClassVar = frozenset({"Write", "Edit"})

    async def denial(self, tool: Tool, arguments: Any, workspace: Workspace) -> str | None:
        """Return why the helper may not make the call, as a text for the model; None if it may. Never prompts the user.

        Raises `ToolFailed` if a path or URL in *arguments* is invalid.
        """
        call = ToolCallFacts.of(tool, arguments, workspace)
        layers = () if self.authority is None else self.authority.permissions.layers()
        if rule := next((rule for layer in layers for rule in layer.deny if rule.may_be(call)), None):
            return f"The rule {rule.text} denies this call."
        if tool.name in self.reading:
            return self._outside(call.paths, self._readable_directories(workspace), "read")
        if tool.name in self.writing:
            return self._outside(call.paths, self.writable, "write")
        if call.command is not None:
            return self._command_denial(call.command, workspace)
        return f"{tool.name} cannot be used here. Use {', '.join(sorted(self.reading | self.writing))} or Bash."

    def _readable_directories(self, workspace: Workspace) -> tuple[Path, ...]:
        results = (workspace.scratch / RESULTS_DIRECTORY, workspace.scratch / JOBS_DIRECTORY)
        return (workspace.root, *results, *self.readable, *self.writable)

    def _outside(self, paths: Iterable[Path], directories: tuple[Path, ...], what: str) -> str | None:
        for path in paths:
            if not any(is_inside(path, directory) for directory in directories):
                return f"You may {what} only below {', '.join(map(str, directories))}; {path} is outside."
        return None

    def _command_denial(self, line: CommandLine, workspace: Workspace) -> str | None:
        if reason := write_reason(line):
            return f"Only commands that certainly just read are allowed here, and this has {reason}."
        directories = (*self._readable_directories(workspace), Path("/dev/null"))
        for word in _arguments(line):
            if (path := _path_of(word, workspace)) is None:
                return f"The path of {word.raw} cannot be told in advance. Write the path out, or use another tool."
            if reason := self._outside([path], directories, "read"):
                return reason
        return None


def _arguments(line: CommandLine) -> Iterator[ShellWord]:
    """Yield the arguments of all commands in *line*, and the files from which input is redirected."""
    for command in (*line.commands, *line.substituted):
        yield from command.words[1:]
        yield from (redirection.target for redirection in command.redirections if redirection.operator == "<")


def _path_of(word: ShellWord, workspace: Workspace) -> Path | None:
    """Return the path that *word*, an argument of a command, would name; None if it is not known in advance."""
    text = word.text if word.is_literal else word.raw
    if text.startswith("-"):
        option, _, text = text.partition("=")
        if "/" in option or ".." in option:  # A path may follow the letter of an option directly.
            return None
    # Only the matches of a file name pattern are known well enough.
    if not word.is_literal and any(sign in word.raw for sign in "~$`'\"\\"):
        return None
    directory = workspace.shell.directory
    try:
        return (directory / text).resolve() if word.is_literal else _beginning(directory, text)
    except (OSError, ValueError, RuntimeError):  # RuntimeError: a cycle of links.
        return None


def _beginning(directory: Path, pattern: str) -> Path | None:
    """Return the directory below which all matches of the file name pattern are; None if that is unknown."""
    parts = Path(pattern).parts
    fixed = next((number for number, part in enumerate(parts) if any(sign in part for sign in "*?[{")), len(parts))
    return None if ".." in parts[fixed:] else directory.joinpath(*parts[:fixed]).resolve()
