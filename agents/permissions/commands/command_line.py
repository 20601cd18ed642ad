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
    """Where a command's input comes from, or its output goes."""

    operator: str
    target: ShellWord

    @property
    def is_harmless(self) -> bool:
        """Whether nothing is written and nobody is called: input from files, no output, one descriptor for another."""
        if self.operator in ("<<", "<<-", "<<<"):
            return True
        if not self.target.is_literal:
            return False
        if self.operator in (">&", "<&"):
            return _DESCRIPTOR.fullmatch(self.target.text) is not None
        if self.operator == "<":
            # The shell itself makes a connection of these names.
            return _NETWORK.match(self.target.text) is None
        return self.operator != "<>" and self.target.text == NULL


@attrs.frozen(kw_only=True)
class SimpleCommand:
    """One command that would run, with what stands around its words."""

    words: tuple[ShellWord, ...]
    """Its name and its arguments; none if there are only assignments or redirections."""
    assignments: tuple[ShellWord, ...] = ()
    redirections: tuple[Redirection, ...] = ()

    @property
    def name(self) -> str:
        """What runs, without the directory it is in; empty if that is not known."""
        return self.words[0].text.rpartition("/")[2] if self.words and self.words[0].is_literal else ""

    @property
    def is_plain(self) -> bool:
        """Whether the words are all there is to judge: no variable is set, nothing is written."""
        return not self.assignments and all(redirection.is_harmless for redirection in self.redirections)


@attrs.frozen(kw_only=True)
class CommandLine:
    """All that a command line would run."""

    text: str
    commands: tuple[SimpleCommand, ...] = ()
    substituted: tuple[SimpleCommand, ...] = ()
    """Those in substitutions, whose output becomes part of another command."""
    unclear: str | None = None
    """What makes the shell's reading uncertain, as in "it has ..."; None if the commands above are all."""

    def mentions(self, name: str) -> bool:
        """Whether *name* stands anywhere as a word, quoted or not, with a directory or without."""
        words = (word.text for command in (*self.commands, *self.substituted) for word in command.words)
        found = (match[0] for text in (self.text, *words) for match in _NAME.finditer(text))
        return any(word == name or word.rpartition("/")[2] == name for word in found)
