"""Paths, names and numbers that a summary lost, found by comparing texts."""

import re
from collections.abc import Iterable, Iterator

TURNS = 10
"""Turns before a compaction whose marked words are looked for behind it."""

_NUMBERED = re.compile(r"^[ ]*\d+\t", re.MULTILINE)
"""The number that a listing puts before a line: it says where the line was, and nothing of what is in it."""
_TOKEN = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|[\w./~@+-]+")
_TAIL = "./@+~-"
"""What ends a sentence, or a directory, and not the word."""
_HEAD = re.compile(r"[@+]+|/{2,}|\.{2,}(?!/)|\.(?!\w|\.?/)|-(?!-)")
"""What begins no word; a path keeps its root, and an option its dashes."""
_MARKED = re.compile(
    r"""
      (?: ~ | \.{1,2} )? / .* [^\W_] .*                     # a path from a root, a home or a directory
    | [^/]+ (?: / [^/]+ )+                                  # a path that begins somewhere
    | --[a-z][\w.-]*                                        # an option
    | \.? (?= .* [^\W\d_] ) (?= .* [^\W_]{2} ) \w[\w@-]* (?: \.[\w-]+ )+   # a dotted name, a file with an extension
    | \.[a-z][\w-]{2,}                                     # a hidden file
    | (?= .* [^\W_] ) \w* _ [\w-]*                          # snake_case, and what begins with an underscore
    | \w* (?: [a-z\d][A-Z] | [A-Z]{2}[a-z]{2} ) [\w-]*      # CamelCase
    | [A-Z][A-Z\d]{3,}                                      # a constant
    | (?= .{3} ) (?= .* \d ) (?= .* [^\W\d_] ) [\w.@+-]+    # an id, a hash, a version, the code of an error
    | \d{2,} | \d+ (?: [.-] \d+ )+                          # a number, a version, a date
    """,
    re.VERBOSE,
)
_PROSE = re.compile(
    r"and/or|either/or|n/a|w/o|(?:read|input|true|yes|s?he|on)/\w{2,6}|I/O|\d*(?:1st|2nd|3rd|\dth)"
    # A year alone is most often that of a licence or a log. Where it matters it stands in a date, which counts.
    r"|199\d|20(?:0[1-9]|[123]\d)",
    re.IGNORECASE,
)


def find_terms(text: str) -> dict[str, None]:
    """The paths, identifier-like words and numbers of *text*, each once, in the order in which they first stand there.

    A number is one of two digits or more, without its commas. Numbers that a listing gives its lines are none.
    """
    return dict.fromkeys(filter(_is_marked, _terms_in(_chunks(text))))


def find_lost_terms(before: Iterable[str], after: str) -> list[str]:
    """The marked words of *before* that are in *after* no more, as words of their own.

    *before* has a text for each turn, the oldest first; the words of the newest come first, each once.
    """
    chunks = _chunks(after)
    known = set(_terms_in(chunks))
    found: list[str] = []
    for text in reversed(list(before)):
        # Most of a text was said elsewhere too: only what is new in it is looked into.
        new_chunks = {chunk: None for chunk in _chunks(text) if chunk not in chunks}
        chunks |= new_chunks
        new = {word: None for word in _terms_in(new_chunks) if word not in known}
        known |= new.keys()
        found += filter(_is_marked, new)
    return found


def _chunks(text: str) -> dict[str, None]:
    """What stands between spaces, each once."""
    return dict.fromkeys((_NUMBERED.sub("", text) if "\t" in text else text).split())


def _terms_in(chunks: Iterable[str]) -> Iterator[str]:
    for token in dict.fromkeys(_TOKEN.findall(" ".join(chunks))):
        word = token.rstrip(_TAIL)
        if word and not word[0].isalnum() and (head := _HEAD.match(word)):
            word = word[head.end() :]
        if word:
            yield word.replace(",", "")


def _is_marked(word: str) -> bool:
    if word.isalpha() and (word.islower() or word.istitle()):
        return False
    return _MARKED.fullmatch(word) is not None and _PROSE.fullmatch(word) is None
