"""What another program can look for in the bytes of a file: a pattern that matches wherever Python's would.

Python searches decoded text, so no other engine means quite the same by a class, a letter's case or a line's end. But to
tell the files that cannot have a match, it is enough to find too much. Every part of an expression becomes one that
matches at least as much, in terms of bytes alone: nothing depends on anybody's tables of Unicode.
"""

import re
from collections.abc import Callable, Iterable

ASCII = frozenset(map(chr, range(128)))
WIDE = r"[\x80-\xff]+"
"""Any letter beyond ASCII, and whatever is not UTF-8, which Python reads as one letter or several."""
ANY = rf"(?:[\x00-\x09\x0b-\x7f]|{WIDE})"
NOTHING = "(?:)"
BEGIN = r"(?:^(?:\xef\xbb\xbf)?)"
"""Python does not see a byte order mark, nor the second half of a line end."""
END = r"(?:\r?$)"
OTHER_CASES = {"i": "\u0130\u0131", "k": "\u212a", "s": "\u017f"}
"""Letters beyond ASCII that are the same as one of ASCII where case is ignored."""

_CLASSES = {letter: frozenset(re.findall(rf"\{letter}", "".join(ASCII), re.ASCII)) for letter in "dDwW"}
_CLASSES |= {"s": frozenset(filter(str.isspace, ASCII)), "S": frozenset(c for c in ASCII if not c.isspace())}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
_ASSERTIONS = {"b": NOTHING, "B": NOTHING, "A": BEGIN, "Z": END}

_TOKEN = re.compile(
    r"""
      (?P<group> \( (?: \?: | \?P<[A-Za-z_][A-Za-z0-9_]*> | (?!\?) ) )
    | (?P<plain> [|)] )
    | (?P<repeat> (?: [*+?] | \{ (?P<least>[0-9]*) (?P<comma>,?) (?P<most>[0-9]*) \} (?<!\{\}) ) [?+]? )
    | (?P<set> \[ (?P<negation>\^?) (?P<items> (?: \] | \\. | [^\]\\] ) (?: \\. | [^\]\\] )* ) \] )
    | (?P<dot> \. )
    | (?P<begin> \^ )
    | (?P<end> \$ )
    | \\ (?P<escaped> . )
    | (?P<letter> [^\\(\[\n] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ITEM = re.compile(r"(?P<first>\\.|.)(?:-(?P<last>\\.|.))?", re.DOTALL)
_UNCERTAIN = re.compile(r"^\[|--|&&|~~|\|\|")
"""What Python warns about in a set, because it may come to mean something else."""
_LARGEST_COUNT = 1_000


class _Untold(Exception):
    """A part of the expression is not among those we can speak for."""
