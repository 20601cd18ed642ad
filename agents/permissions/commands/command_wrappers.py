"""Commands that run other commands."""

import re
from collections.abc import Iterator, Sequence

from coterie.agents.permissions.commands.command_line import CommandLine, SimpleCommand
from coterie.agents.permissions.commands.command_parser import parse_command
from coterie.agents.permissions.commands.shell_word import ShellWord

SHELLS = frozenset({"sh", "bash", "rbash", "dash", "ash", "zsh", "ksh", "mksh", "fish"})
WRAPPERS = SHELLS | {
    *("builtin", "command", "eval", "exec", "trap", "time", "xargs", "parallel", "find", "fd", "entr", "watch"),
    *("env", "nohup", "nice", "ionice", "chrt", "taskset", "timeout", "stdbuf", "setsid", "flock", "script"),
    "unbuffer",
    *("sudo", "doas", "su", "runuser", "pkexec", "setpriv", "chroot", "unshare", "nsenter", "fakeroot", "systemd-run"),
    *("strace", "ltrace", "perf", "valgrind", "busybox", "toybox", "ssh", "tmux", "screen", "bwrap", "firejail"),
}
"""Known wrappers. The list can never be complete: a deny rule is a precaution, not a sandbox."""
SUBSCRIPTING = frozenset(
    {
        *("[", "test", "let", "printf", "read", "unset", "declare", "typeset", "local", "readonly", "export"),
        *("mapfile", "readarray", "getopts", "wait"),
    }
)
"""Builtins that take a variable name and run the substitutions in its subscript, even if the argument was quoted."""

_SUBSCRIPT = re.compile(r"\[.*[$`]", re.DOTALL)
_SCRIPT = re.compile(r"[\s;&|<>()'\"\\$`]")


def opaque_reason(line: CommandLine) -> str | None:
    """Return the reason why *line* may run other commands than parsed, as in "it has ..."; None if it cannot."""
    if line.unclear is not None:
        return line.unclear
    commands = (*line.commands, *line.substituted)
    return next(
        (f"a {command.name} that runs hidden commands" for command in commands if _hides_commands(command)), None
    )


def wrapped_commands(line: CommandLine, size: int) -> Iterator[Sequence[ShellWord]]:
    """Yield the first words, at most *size*, of every command that *line* may run, also through wrappers."""
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
