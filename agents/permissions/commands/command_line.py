"""Command lines as rules see them: each command with its redirections."""

import re

import attrs

from coterie.agents.permissions.commands.shell_word import ShellWord

NULL = "/dev/null"

_DESCRIPTOR = re.compile(r"[0-9]+-?|-")
_NETWORK = re.compile(r"/dev/(tcp|udp)/")
_NAME = re.compile(r"[^\s;&|<>()'\"\\$`{}=,]+")


@attrs.frozen
class Redirection:
    """Redirection of the input or output of a command."""

    operator: str
    target: ShellWord

    @property
    def is_harmless(self) -> bool:
        """True if nothing is written and no connection is opened.

        Such redirections are input from files, discarded output, and duplicated descriptors.
        """
        if self.operator in ("<<", "<<-", "<<<"):
            return True
        if not self.target.is_literal:
            return False
        if self.operator in (">&", "<&"):
            return _DESCRIPTOR.fullmatch(self.target.text) is not None
        if self.operator == "<":
            # The shell opens network connections for these file names.
            return _NETWORK.match(self.target.text) is None
        return self.operator != "<>" and self.target.text == NULL


@attrs.frozen(kw_only=True)
class SimpleCommand:
    """One command that would run, with its assignments and redirections."""

    words: tuple[ShellWord, ...]
    """Name and arguments of the command; empty if there are only assignments or redirections."""
    assignments: tuple[ShellWord, ...] = ()
    redirections: tuple[Redirection, ...] = ()

    @property
    def name(self) -> str:
        """Name of the program, without its directory; empty if unknown."""
        return self.words[0].text.rpartition("/")[2] if self.words and self.words[0].is_literal else ""

    @property
    def is_plain(self) -> bool:
        """True if only the words matter, because no variable is set and nothing is written."""
        return not self.assignments and all(redirection.is_harmless for redirection in self.redirections)


@attrs.frozen(kw_only=True)
class CommandLine:
    """All commands that a command line would run."""

    text: str
    commands: tuple[SimpleCommand, ...] = ()
    substituted: tuple[SimpleCommand, ...] = ()
    """Commands in substitutions; their output becomes part of another command."""
    unclear: str | None = None
    """Construct that makes the parse uncertain, as in "it has ..."; None if the commands above are complete."""

    def mentions(self, name: str) -> bool:
        """True if *name* occurs anywhere as a word, quoted or not, with or without a directory."""
        words = (word.text for command in (*self.commands, *self.substituted) for word in command.words)
        found = (match[0] for text in (self.text, *words) for match in _NAME.finditer(text))
        return any(word == name or word.rpartition("/")[2] == name for word in found)
