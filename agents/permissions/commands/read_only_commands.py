"""Allow-list of programs and options that only read files and print; a command line is judged by this list."""

import re
from collections.abc import Iterator, Mapping
from string import ascii_letters, digits

import attrs

from coterie.agents.permissions.commands.command_parser import CommandLine, SimpleCommand
from coterie.agents.permissions.commands.command_pattern import opaque_reason
from coterie.agents.permissions.commands.shell_word import ShellWord

HARMLESS = frozenset(
    {
        *("cat", "head", "tail", "nl", "tac", "rev", "wc", "cut", "tr", "paste", "fold", "expand", "od"),
        *("ls", "stat", "du", "df", "basename", "dirname", "realpath", "readlink", "pwd", "which"),
        *("grep", "egrep", "fgrep", "cmp", "comm", "jq", "echo", "true", "false", "test", "[", "seq"),
        *("md5sum", "sha1sum", "sha256sum", "cksum", "whoami", "uname"),
    }
)
"""Programs that only read and print with any arguments."""
SYSTEM_DIRECTORIES = frozenset({"", "/bin/", "/usr/bin/"})
"""Allowed texts before the name of a program; in another directory, a different program may have this name."""


def _prefixed(prefix: str, names: str) -> frozenset[str]:
    return frozenset(f"{prefix}{name}" for name in names.split())


def _long_names(names: str) -> frozenset[str]:
    return _prefixed("--", names)


@attrs.frozen
class AllowedOptions:
    """Options with which a program only reads. Every other option is refused."""

    letters: str
    """Letters of short options, which may be combined as in `-rn`; digits are for `-5` and values as in `-k2`."""
    names: frozenset[str] = attrs.field(converter=_long_names)
    """Full names of long options, with `--`. Abbreviated names are refused."""

    def allow(self, option: str) -> bool:
        """True if *option*, a word that begins with `-`, is allowed. A value after `=` does not matter."""
        if option.startswith("--"):
            return option == "--" or option.partition("=")[0] in self.names
        return set(option[1:].partition(",")[0]) <= set(self.letters)


OPTIONS: Mapping[str, AllowedOptions] = {
    "date": AllowedOptions("uIR", "date utc universal iso-8601 rfc-email rfc-3339"),
    "diff": AllowedOptions(
        "abcdeinpqrstuwyBENTU" + digits,
        "brief unified context side-by-side recursive text ignore-case ignore-space-change ignore-all-space"
        " ignore-blank-lines report-identical-files show-c-function new-file minimal color width exclude label",
    ),
    "file": AllowedOptions("0bhikLr", "brief mime mime-type mime-encoding dereference no-dereference extension"),
    "sort": AllowedOptions(
        "bcCdfghikMmnRrstuVz." + digits,
        "key field-separator reverse unique numeric-sort general-numeric-sort human-numeric-sort version-sort"
        " month-sort random-sort ignore-case ignore-leading-blanks dictionary-order check stable zero-terminated",
    ),
    "strings": AllowedOptions("afnt" + digits, "all bytes radix print-file-name"),
    "uniq": AllowedOptions(
        "cdDfiswuz" + digits,
        "count repeated all-repeated unique ignore-case skip-fields skip-chars check-chars group zero-terminated",
    ),
    "rg": AllowedOptions(
        "ABCEFHILMNPSTUacdeghijlmnopqrstuvwx." + digits,
        "hidden files files-with-matches files-without-match count count-matches line-number no-line-number"
        " ignore-case smart-case case-sensitive fixed-strings word-regexp line-regexp invert-match only-matching"
        " multiline multiline-dotall pcre2 regexp context after-context before-context glob iglob type type-not"
        " type-list max-count max-depth max-columns max-filesize no-ignore no-ignore-vcs no-config heading no-heading"
        " with-filename no-filename color colors column json vimgrep stats sort sortr text null replace trim"
        " no-messages follow unrestricted encoding passthru quiet crlf one-file-system pretty threads version",
    ),
    # `-O` runs a pager (grep), also in a group of letters.
    "git": AllowedOptions(
        ascii_letters.replace("O", "") + digits,
        "abbrev abbrev-commit abbrev-ref after all all-match always and author author-date-order batch batch-check"
        " before branch branches break-rewrites cached cc cherry cherry-mark cherry-pick children color color-words"
        " committer compact-summary contains count cumulative date date-order decorate deleted diff-filter"
        " diff-merges dirstat email exact-match exclude exclude-standard extended-regexp fields files-with-matches"
        " find-copies find-copies-harder find-renames first-parent fixed-strings follow format full-history"
        " full-index function-context git-dir graph grep heads histogram ignore-all-space ignore-blank-lines"
        " ignore-case ignore-space-change ignored incremental inter-hunk-context invert-grep is-inside-work-tree"
        " left-only left-right line-number line-porcelain log-size long match max-count max-depth max-parents"
        " merge-base merges min-parents minimal modified name-only name-status names-only no-abbrev no-abbrev-commit"
        " no-color no-color-moved no-decorate no-ext-diff no-index no-merges no-notes no-pager no-patch no-renames"
        " no-textconv not numbered numstat objects oneline only-matching or ordered others parents patch"
        " patch-with-stat patience perl-regexp pickaxe-all pickaxe-regex porcelain prefix pretty quiet raw recursive"
        " regexp-ignore-case relative relative-date remotes reverse right-only root short shortstat show-current"
        " show-function show-number show-prefix show-stash show-toplevel simplify-by-decoration simplify-merges since"
        " skip source stage stat summary symbolic symbolic-full-name tags text threads topo-order unified unmerged"
        " until untracked untracked-files verify walk-reflogs word-diff word-diff-regex word-regexp",
    ),
}
"""Program name -> options with which the program only reads."""
READING_GIT = frozenset(
    {
        *("log", "show", "diff", "status", "blame", "grep", "shortlog", "describe"),
        *("ls-files", "ls-tree", "rev-parse", "rev-list", "cat-file"),
    }
)
"""Subcommands of git that only read with the options of `OPTIONS`."""

FIND_SWITCHES = _prefixed(
    "-",
    "P L H a o and or not true false empty readable writable executable nouser nogroup daystart depth d follow mount"
    " xdev noleaf prune print print0 ls quit",
)
"""Words of `find` without a value that only select or print files."""
FIND_VALUES = _prefixed(
    "-",
    "name iname path ipath wholename iwholename regex iregex regextype lname ilname type xtype size mtime mmin atime"
    " amin ctime cmin newer anewer cnewer perm user group uid gid inum links samefile fstype used maxdepth mindepth"
    " printf",
)
"""Words of `find` with one value that only select or print files."""

_NEWER = re.compile(r"-newer[aBcm][aBcmt]")


def write_reason(line: CommandLine) -> str | None:
    """Return the part of *line* that may write or run a program, such as "a redirection"; None if it only reads."""
    if reason := opaque_reason(line):
        return reason
    reasons = (_command_write_reason(command) for command in (*line.commands, *line.substituted))
    return next(filter(None, reasons), None)


def _command_write_reason(command: SimpleCommand) -> str | None:
    name = command.name
    if not command.is_plain:
        return "a redirection or an assignment"
    if command.words and command.words[0].text.removesuffix(name) not in SYSTEM_DIRECTORIES:
        return f"a {name or 'command'} outside of the system directories"
    if not command.words or name in HARMLESS:
        return None
    if name != "find" and name not in OPTIONS:
        return f"{name or 'a command'}, which is not known to be read-only"
    refused = next(_refused_arguments(name, command.words[1:]), None)
    return None if refused is None else f"a {name} with {refused}"


def _refused_arguments(name: str, arguments: tuple[ShellWord, ...]) -> Iterator[str]:
    """Yield the *arguments* with which the program *name* might write or run a program."""
    # Of two files that a pattern matches, uniq would write the second.
    yield from (word.raw for word in arguments if _may_become_option(word) or (name == "uniq" and not word.is_literal))
    words = [word.text for word in arguments]
    if name == "find":
        yield from _refused_find_words(words)
    elif name == "git":
        words = words[words[:1] == ["--no-pager"] :]
        if not words or words[0] not in READING_GIT:
            yield " ".join(words[:1]) or "no command"
        yield from _refused_words(name, words)
    else:
        yield from _refused_words(name, words)


def _may_become_option(word: ShellWord) -> bool:
    """True if *word* may become a word that begins with `-`, or contains a variable or a command substitution.

    A file name pattern keeps its beginning, so `src/*.py` becomes no option; it may still become several words.
    """
    if word.is_literal:
        return False
    beginning = next((piece for piece in word.pieces if piece != ""), None)
    return beginning is None or beginning.startswith("-") or "$" in word.raw or "`" in word.raw


def _refused_words(name: str, words: list[str]) -> Iterator[str]:
    """Yield the *words* that `OPTIONS` does not allow, the second file of uniq (written), and a time to set with date.

    Each word that begins with `-` is judged as an option, also after `--` and after an option with a value, because
    the program may understand the word before in another way.
    """
    operands = 0
    for word in words:
        if word.startswith("-") and word != "-":
            if not OPTIONS[name].allow(word):
                yield word
        else:
            operands += 1
            # The operand of date sets the clock, and the second file of uniq is written.
            if (name == "date" and not word.startswith("+")) or (name == "uniq" and operands > 1):
                yield word


def _refused_find_words(words: list[str]) -> Iterator[str]:
    remaining = iter(words)
    for word in remaining:
        if word in FIND_VALUES or _NEWER.fullmatch(word):
            next(remaining, None)
        elif word.startswith("-") and word not in FIND_SWITCHES:
            yield word
