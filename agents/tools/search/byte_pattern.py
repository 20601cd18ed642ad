"""Byte patterns that match at least wherever a Python regular expression matches.

Python searches decoded text, and other engines define classes, case and line ends differently. To exclude files without
a match, a pattern may match too much but never too little. So each part of an expression is translated to a byte
pattern that matches the same or more, independent of Unicode tables.
"""

import re
from collections.abc import Iterable

ASCII = frozenset(map(chr, range(128)))
BEYOND = r"[\x80-\xff]+"
"""A non-ASCII character, or invalid UTF-8, which Python decodes to a replacement character."""
ANY = rf"(?:[\x00-\x09\x0b-\x7f]|{BEYOND})"
ANYWHERE = "(?:)"
"""Replaces assertions about a position, because Python does not see byte order marks and carriage returns."""
SAME_LETTERS = {"i": "\u0130\u0131", "k": "\u212a", "s": "\u017f"}
"""ASCII letter -> non-ASCII letters that are equal to it if case is ignored."""
REPETITION_DIGITS = 3

_DIGITS = frozenset(filter(str.isdigit, ASCII))
_WORD = frozenset(filter(str.isalnum, ASCII)) | {"_"}
_SPACE = frozenset(filter(str.isspace, ASCII))
_CLASSES = {"d": _DIGITS, "D": ASCII - _DIGITS, "w": _WORD, "W": ASCII - _WORD, "s": _SPACE, "S": ASCII - _SPACE}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
_IGNORES_CASE = "(?i)"

_TOKEN = re.compile(
    r"""
      (?P<group>     \( (?: \?: | \?P<[A-Za-z_][A-Za-z0-9_]*> | (?!\?) ) )
    | (?P<structure> [|)] )
    | (?P<repeat>    (?: (?P<sign> [*+?] ) | \{ (?P<least> [0-9]* ) (?P<most> ,? [0-9]* ) \} (?<!\{\}) ) [?+]? )
    | (?P<set>       \[ (?P<not> \^?+ ) (?P<items> (?: \] | \\. | [^\]\\] ) (?: \\. | [^\]\\] )* ) \] )
    | (?P<assertion> [$^] | \\[AZbB] )
    | (?P<letter>    \\. | [^\\(\[] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ITEM = re.compile(r"(?P<first>\\.|.)(?:-(?P<last>\\.|.))?", re.DOTALL)
_WARNED_OF = re.compile(r"^\[|--|&&|~~|\|\|")
"""Parts of a set for which Python issues a warning, because their meaning may change."""


class _Untranslatable(Exception):
    """A part of the expression has no safe translation."""


def byte_pattern(expression: str, *, ignore_case: bool) -> str | None:
    """Translate *expression* to an ASCII pattern for single lines of bytes; None if it cannot be translated.

    The result for an invalid *expression* may be a pattern or None.
    """
    ignore_case = ignore_case or expression.startswith(_IGNORES_CASE)
    position = len(_IGNORES_CASE) if expression.startswith(_IGNORES_CASE) else 0
    parts = []
    try:
        while position < len(expression):
            token = _TOKEN.match(expression, position)
            if token is None:
                return None
            parts.append(_part(token, ignore_case=ignore_case))
            position = token.end()
    except _Untranslatable:
        return None
    return "".join(parts)


def _part(token: re.Match[str], *, ignore_case: bool) -> str:
    match token.lastgroup:
        case "group":
            return "(?:"
        case "repeat":
            return token["sign"] or _repetition(token["least"], token["most"])
        case "set":
            return _set(token["items"], is_negated=bool(token["not"]), ignore_case=ignore_case)
        case "assertion":
            return ANYWHERE
        case "letter":
            return _single(token[0], ignore_case=ignore_case)
        case _:
            return token[0]


def _repetition(least: str, most: str) -> str:
    """Translate a counted repetition; greedy, lazy and possessive variants match the same lines or fewer."""
    if max(len(least), len(most.removeprefix(","))) > REPETITION_DIGITS:
        raise _Untranslatable
    return f"{{{least or 0}{most}}}"


def _single(text: str, *, ignore_case: bool) -> str:
    """Translate a part that matches one character: the character itself, an escape, or a dot."""
    if text == ".":
        return ANY
    if _is_class(text):
        return _one_of(_CLASSES[text[1]], and_beyond=True)
    letter = _literal(text)
    if letter == "\n":
        raise _Untranslatable
    if letter not in ASCII and (ignore_case or letter == "\N{REPLACEMENT CHARACTER}"):
        # Unicode case rules are not reproduced here, and a replacement character can stand for any invalid bytes.
        return ANY
    same = {letter.lower(), letter.upper(), *SAME_LETTERS.get(letter.lower(), "")} if ignore_case else {letter}
    return f"(?:{'|'.join(map(_bytes, sorted(same)))})"


def _is_class(text: str) -> bool:
    return text[0] == "\\" and text[1] in _CLASSES


def _literal(text: str) -> str:
    """Return the character that *text*, a character or an escape, matches."""
    if text[0] != "\\":
        return text
    if text[1] in _CONTROLS:
        return _CONTROLS[text[1]]
    if text[1] in _WORD - {"_"}:
        raise _Untranslatable
    return text[1]


def _set(items: str, *, is_negated: bool, ignore_case: bool) -> str:
    if _WARNED_OF.search(items):
        raise _Untranslatable
    listed: set[str] = set()
    has_beyond = is_negated or ignore_case
    for item in _ITEM.finditer(items):
        first, last = item["first"], item["last"]
        if last is None and _is_class(first):
            listed |= _CLASSES[first[1]]
            has_beyond = True
        else:
            lowest, highest = _literal(first), _literal(last or first)
            listed |= {letter for letter in ASCII if lowest <= letter <= highest}
            has_beyond = has_beyond or highest not in ASCII
    if is_negated:
        # If case is ignored, Python excludes further letters, but excluding too few is safe.
        return _one_of(ASCII - listed, and_beyond=True)
    if ignore_case:
        listed |= {letter.swapcase() for letter in listed} | {*"iksIKS"}
    return _one_of(listed, and_beyond=has_beyond)


def _one_of(letters: Iterable[str], *, and_beyond: bool) -> str:
    """Return a pattern for one of the ASCII *letters*, or also for a non-ASCII character."""
    inside = "".join(map(_bytes, sorted({*letters} - {"\n"})))
    if not inside and not and_beyond:
        raise _Untranslatable
    return "(?:" + "|".join([f"[{inside}]"] * bool(inside) + [BEYOND] * and_beyond) + ")"


def _bytes(letter: str) -> str:
    # An unpaired surrogate never occurs in decoded text, so any encoding of it is correct.
    return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass"))
