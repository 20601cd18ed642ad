"""Patterns of commands in rules."""

import re
import shlex
from collections.abc import Sequence
from typing import Self

import attrs

from coterie.agents.permissions.commands.command_line import CommandLine, SimpleCommand
from coterie.agents.permissions.commands.command_parser import parse_command
from coterie.agents.permissions.commands.command_wrappers import opaque_reason, wrapped_commands
from coterie.agents.permissions.commands.shell_word import ShellWord

_BRACES = re.compile(r"(?<!\$)\{")

EXAMPLE = "Bash(git status:*)"


@attrs.frozen
class CommandPattern:
    """Describes commands by their words, as the command gets them: how they were quoted makes no difference."""

    words: tuple[str, ...]
    is_open: bool
    """Whether more words may follow."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `git status:*`, `git status *` or `git status`. Raises `ValueError` with what is wrong."""
        bare = text.removesuffix(":*")
        if bare == text and text.endswith(" *"):
            bare = text[:-2]
        line = parse_command(bare)
        if line.unclear is not None or line.substituted or len(line.commands) != 1:
            raise ValueError(f"{bare!r} is not one simple command")
        (command,) = line.commands
        if command.assignments or command.redirections:
            raise ValueError(f"{bare!r} has more than words")
        if not all(word.is_literal for word in command.words):
            raise ValueError(f"{bare!r} has a word that the shell expands; only the end of a rule is open, with :*")
        return cls(tuple(word.text for word in command.words), is_open=bare != text)

    def __str__(self) -> str:
        return shlex.join(self.words) + ":*" * self.is_open

    def covers(self, command: SimpleCommand) -> bool:
        """Whether *command* surely is what the pattern describes, and nothing else."""
        beginning = command.words[: len(self.words)]
        if not command.is_plain or not all(word.is_literal for word in beginning):
            return False
        is_whole = len(command.words) == len(self.words)
        return tuple(word.text for word in beginning) == self.words and (self.is_open or is_whole)

    def may_be_in(self, line: CommandLine) -> bool:
        """Whether *line* may run what the pattern describes, from any directory and through any known wrapper.

        Where a line is not clear, the first word of the pattern is enough, wherever it stands.
        """
        if any(self._may_be(words) for words in wrapped_commands(line, len(self.words) + 1)):
            return True
        return opaque_reason(line) is not None and line.mentions(self.words[0])

    def _may_be(self, words: Sequence[ShellWord]) -> bool:
        for index, (wanted, word) in enumerate(zip(self.words, words, strict=False)):
            if not (_may_be_name(word, wanted) if index == 0 else word.may_be(wanted)):
                return False
            if not word.is_literal:
                # It may become several words or none, so what follows can be anything.
                return True
        return len(words) == len(self.words) or (self.is_open and len(words) > len(self.words))


def _may_be_name(word: ShellWord, name: str) -> bool:
    """Whether a command of this *name* may run, wherever it stands; a name with a directory means that file only."""
    if word.is_unknown:
        # A variable's value is mentioned somewhere; braces put names together that stand nowhere.
        return _BRACES.search(word.raw) is not None
    if "/" in name:
        return word.may_be(name)
    return attrs.evolve(word, pieces=_last_part(word.pieces)).may_be(name)


def _last_part(pieces: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """The pieces behind the last slash that is known."""
    for index in range(len(pieces) - 1, -1, -1):
        piece = pieces[index]
        if piece is not None and "/" in piece:
            return (piece.rpartition("/")[2], *pieces[index + 1 :])
    return pieces
