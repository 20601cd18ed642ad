"""Detection of paths, names and numbers that are missing in a conversation after a part of it was summarised."""

import re
from collections.abc import Iterable, Iterator

TURNS = 10
"""Number of the newest summarised turns whose paths, names and numbers are searched in the new conversation."""

_NUMBERED = re.compile(r"^[ ]*\d+\t", re.MULTILINE)
"""Line number at the start of a line in a file listing; removed, because the number is not content."""
_TOKEN = re.compile(r"\d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?|[\w./~@+-]+")
_TAIL = "./@+~-"
"""Characters that are removed from the end of a term, because they belong to the sentence or mark a directory."""
_HEAD = re.compile(r"[@+]+|/{2,}|\.{2,}(?!/)|\.(?!\w|\.?/)|-(?!-)")
"""Characters that are removed from the start of a term; a path keeps its root `/`, and `--option` its dashes."""
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
    # A year alone usually belongs to a licence or a log; in a date it counts.
    r"|199\d|20(?:0[1-9]|[123]\d)",
    re.IGNORECASE,
)


def find_lost_terms(before: Iterable[str], after: str) -> list[str]:
    """Return the terms in *before*, summarised messages, that *after*, the new conversation, does not contain as words.

    Terms are paths, identifiers and numbers with at least two digits, without commas. Line numbers of listings are
    ignored. *before* contains a text for each message, oldest first. The result begins with the terms of the newest
    message and contains each term once.
    """
    chunks = _chunks(after)
    known = set(_terms_in(chunks))
    found: list[str] = []
    for text in reversed(list(before)):
        # Most chunks of a text also occur in other texts, so only new chunks are split.
        new_chunks = {chunk: None for chunk in _chunks(text) if chunk not in chunks}
        chunks |= new_chunks
        new = {word: None for word in _terms_in(new_chunks) if word not in known}
        known |= new.keys()
        words = (word for word in new if not (word.isalpha() and (word.islower() or word.istitle())))
        found += (word for word in words if _MARKED.fullmatch(word) and not _PROSE.fullmatch(word))
    return found


def _chunks(text: str) -> dict[str, None]:
    """Return the words of *text*, without line numbers of file listings, each once and in order, as keys of a dict."""
    return dict.fromkeys((_NUMBERED.sub("", text) if "\t" in text else text).split())


def _terms_in(chunks: Iterable[str]) -> Iterator[str]:
    for token in dict.fromkeys(_TOKEN.findall(" ".join(chunks))):
        word = token.rstrip(_TAIL)
        if word and not word[0].isalnum() and (head := _HEAD.match(word)):
            word = word[head.end() :]
        if word:
            yield word.replace(",", "")
