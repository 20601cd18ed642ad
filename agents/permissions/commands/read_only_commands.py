"""Commands that are known to only read."""

import re
from collections.abc import Mapping

from coterie.agents.permissions.commands.command_line import CommandLine, SimpleCommand
from coterie.agents.permissions.commands.command_wrappers import opaque_reason
from coterie.agents.permissions.commands.shell_word import ShellWord

PLAIN = frozenset(
    {
        *("cat", "head", "tail", "nl", "tac", "rev", "wc", "cut", "tr", "paste", "fold", "expand", "od", "strings"),
        *("ls", "stat", "du", "df", "basename", "dirname", "realpath", "readlink", "pwd", "which"),
        *("grep", "egrep", "fgrep", "diff", "cmp", "comm", "jq", "echo", "true", "false", "test", "[", "seq"),
        *("md5sum", "sha1sum", "sha256sum", "cksum", "whoami", "uname"),
    }
)
"""Commands that write nothing, with any arguments."""
FORBIDDEN: Mapping[str, tuple[str, ...]] = {
    "date": ("-s", "--set"),
    "file": ("-C", "--compile"),
    "find": ("-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls"),
    "rg": ("--pre", "--hostname-bin"),
    "sort": ("-o", "--output", "--compress-program"),
    "uniq": (),
    "git": ("-O", "--output", "--ext-diff", "--textconv", "--filters", "--open-files-in-pager", "--exec-path"),
}
"""Commands that only read, except with these options."""
GIT = frozenset(
    {
        *("log", "show", "diff", "status", "blame", "grep", "shortlog", "describe"),
        *("ls-files", "ls-tree", "rev-parse", "rev-list", "cat-file"),
    }
)
SYSTEM = frozenset({"", "/bin/", "/usr/bin/"})
"""Allowed prefixes of a command's name; another directory may contain a different program of this name."""

_BUNDLE = re.compile(r"-[A-Za-z0-9]")


def write_reason(line: CommandLine) -> str | None:
    """Return the part of *line* that may write, as in "it has ..."; None if the line certainly only reads."""
    if reason := opaque_reason(line):
        return reason
    return next(
        (what for command in (*line.commands, *line.substituted) if (what := _command_write_reason(command))), None
    )


def _command_write_reason(command: SimpleCommand) -> str | None:
    if not command.is_plain:
        return "a redirection or an assignment"
    name, arguments = command.name, command.words[1:]
    if command.words and command.words[0].text.removesuffix(name) not in SYSTEM:
        return f"a {name or 'command'} outside of the system directories"
    if not command.words or name in PLAIN:
        return None
    if name not in FORBIDDEN:
        return f"{name or 'a command'}, which is not known to be read-only"
    has_operand = any(not word.is_literal or not word.text.startswith("-") for word in arguments)
    if (name == "git" and not _is_reading_git(arguments)) or (name == "uniq" and has_operand):
        return f"a {name} that may write"
    option = next((word.raw for word in arguments if _may_be_one_of(word, FORBIDDEN[name])), None)
    return None if option is None else f"a {name} with {option}"


def _is_reading_git(arguments: tuple[ShellWord, ...]) -> bool:
    words = [word for word in arguments if word.raw != "--no-pager"]
    return bool(words) and words[0].is_literal and words[0].text in GIT


def _may_be_one_of(word: ShellWord, options: tuple[str, ...]) -> bool:
    """True if *word* may be one of *options*, also abbreviated, or in a group of letters."""
    first = word.pieces[0] if word.pieces else ""
    if first is None:
        return bool(options)
    if not first.startswith("-"):
        return False
    given = first.partition("=")[0]
    return not word.is_literal or any(_means(given, option) for option in options)


def _means(given: str, option: str) -> bool:
    if option.startswith("--"):
        return len(given) > len("--") and option.startswith(given)
    is_letter = len(option) == len("-o")
    return given == option or (is_letter and bool(_BUNDLE.match(given)) and option[1] in given)
