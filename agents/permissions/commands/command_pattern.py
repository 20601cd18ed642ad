"""Patterns of commands in permission rules, and detection of commands that run other commands."""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Self

import attrs

from coterie.agents.permissions.commands.command_parser import CommandLine, SimpleCommand, parse_command
from coterie.agents.permissions.commands.shell_word import ShellWord

SHELLS = frozenset({"sh", "bash", "rbash", "dash", "ash", "zsh", "ksh", "mksh", "fish"})
WRAPPERS = SHELLS | {
    *("builtin", "command", "eval", "exec", "trap", "time", "xargs", "parallel", "find", "fd", "entr", "watch"),
    *("env", "nohup", "nice", "ionice", "chrt", "taskset", "timeout", "stdbuf", "setsid", "flock", "script"),
    "unbuffer",
    *("sudo", "doas", "su", "runuser", "pkexec", "setpriv", "chroot", "unshare", "nsenter", "fakeroot", "systemd-run"),
    *("strace", "ltrace", "perf", "valgrind", "busybox", "toybox", "ssh", "tmux", "screen", "bwrap", "firejail"),
}
"""Commands that run other commands. The list can never be complete: a deny rule is a precaution, not a sandbox."""
SUBSCRIPTING = frozenset(
    {
        *("[", "test", "let", "printf", "read", "unset", "declare", "typeset", "local", "readonly", "export"),
        *("mapfile", "readarray", "getopts", "wait"),
    }
)
"""Builtins whose arguments name variables: a substitution in a subscript, as in `a[$(x)]`, runs even if quoted."""

_SUBSCRIPT = re.compile(r"\[.*[$`]", re.DOTALL)
_SCRIPT = re.compile(r"[\s;&|<>()'\"\\$`]")
_BRACES = re.compile(r"(?<!\$)\{")


def opaque_reason(line: CommandLine) -> str | None:
    """Return why *line* may run commands that the parser cannot see, as a phrase; None if all commands are known."""
    if line.unclear is not None:
        return line.unclear
    commands = (*line.commands, *line.substituted)
    hiding = next((command for command in commands if _hides_commands(command)), None)
    return None if hiding is None else f"a {hiding.name} that runs hidden commands"


def wrapped_commands(line: CommandLine, size: int) -> Iterator[Sequence[ShellWord]]:
    """Yield the first words, at most *size*, of every command that *line* may run, also by wrappers such as `sudo`."""
    for command in (*line.commands, *line.substituted):
        yield command.words[:size]
        if command.name in WRAPPERS:
            yield from _wrapped(command, size)


def _wrapped(command: SimpleCommand, size: int) -> Iterator[Sequence[ShellWord]]:
    # Each wrapper has its own options, so the wrapped command may begin at any word.
    for start in range(1, len(command.words)):
        yield command.words[start : start + size]
    # A nested script is shorter by its quotes, so the recursion ends.
    for script in (word.text for word in command.words[1:]):
        if _SCRIPT.search(script):
            yield from wrapped_commands(parse_command(script), size)


def _hides_commands(command: SimpleCommand) -> bool:
    arguments = [word.text for word in command.words[1:]]
    if command.name in SHELLS:
        return all(argument.startswith("-") for argument in arguments)
    return command.name in SUBSCRIPTING and any(_SUBSCRIPT.search(argument) for argument in arguments)


@attrs.frozen
class CommandPattern:
    """Pattern of a command in a Bash rule: the words of the command without quotes."""

    words: tuple[str, ...]
    is_open: bool
    """True if the command may have more words after those of the pattern."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text in the brackets of a rule: `git status:*`, `git status *` or `git status`. Raises
        `ValueError`.
        """
        bare = text.removesuffix(":*")
        if bare == text and text.endswith(" *"):
            bare = text[:-2]
        line = parse_command(bare)
        if line.unclear is not None or line.substituted or len(line.commands) != 1:
            raise ValueError(f"{bare!r} is not one simple command; give each command its own rule")
        (command,) = line.commands
        if command.assignments or command.redirections:
            raise ValueError(f"{bare!r} has an assignment or a redirection; use only words")
        if not all(word.is_literal for word in command.words):
            raise ValueError(f"{bare!r} has a word that the shell expands; only :* at the end of a rule is a wildcard")
        return cls(tuple(word.text for word in command.words), is_open=bare != text)

    def __str__(self) -> str:
        return shlex.join(self.words) + ":*" * self.is_open

    def covers(self, command: SimpleCommand) -> bool:
        """True if *command* certainly matches the pattern and has no other effect, as an allow rule requires."""
        beginning = command.words[: len(self.words)]
        if not command.is_plain or not all(word.is_literal for word in beginning):
            return False
        is_whole = len(command.words) == len(self.words)
        return tuple(word.text for word in beginning) == self.words and (self.is_open or is_whole)

    def may_be_in(self, line: CommandLine) -> bool:
        """True if *line* may run a matching command, in any directory and through any known wrapper.

        In a line that is not fully understood, any occurrence of the first word of the pattern counts as a match.
        """
        if any(self._may_be(words) for words in wrapped_commands(line, len(self.words) + 1)):
            return True
        return opaque_reason(line) is not None and line.mentions(self.words[0])

    def _may_be(self, words: Sequence[ShellWord]) -> bool:
        for index, (expected, word) in enumerate(zip(self.words, words, strict=False)):
            if not (_may_be_name(word, expected) if index == 0 else word.may_be(expected)):
                return False
            if not word.is_literal:
                # An expansion may produce several words or none, so the following words can be anything.
                return True
        return len(words) == len(self.words) or (self.is_open and len(words) > len(self.words))


def _may_be_name(word: ShellWord, name: str) -> bool:
    """True if *word* may name the program *name*, in any directory unless *name* has one; False for a lone variable."""
    if word.is_unknown:
        # The value of a variable occurs elsewhere in the line; braces can build names that occur nowhere.
        return _BRACES.search(word.raw) is not None
    if "/" in name:
        return word.may_be(name)
    return attrs.evolve(word, pieces=_last_part(word.pieces)).may_be(name)


def _last_part(pieces: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """Return the pieces of a word after the last known slash: the file name of a program."""
    for index in range(len(pieces) - 1, -1, -1):
        piece = pieces[index]
        if piece is not None and "/" in piece:
            return (piece.rpartition("/")[2], *pieces[index + 1 :])
    return pieces
