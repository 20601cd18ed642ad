"""Byte patterns that match wherever a regular expression of Python does.

Python searches decoded text, and no other engine means quite the same by a class, a letter's case or a line's end. But
to tell which files cannot have a match, it is enough never to find too little. So each part of an expression becomes
one that matches as much or more, in bytes: nothing depends on anybody's tables of Unicode.
"""

import re
from collections.abc import Iterable

ASCII = frozenset(map(chr, range(128)))
BEYOND = r"[\x80-\xff]+"
"""A letter beyond ASCII, or bytes that are not UTF-8, which Python reads as such a letter."""
ANY = rf"(?:[\x00-\x09\x0b-\x7f]|{BEYOND})"
ANYWHERE = "(?:)"
"""For all that is said of a place: Python is shown neither a byte order mark nor the first half of a line end."""
SAME_LETTERS = {"i": "\u0130\u0131", "k": "\u212a", "s": "\u017f"}
"""The letters beyond ASCII that are the same as one of ASCII where case is ignored."""
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
"""What Python warns of in a set, because a later version may read it otherwise."""


class _Unknown(Exception):
    """A part of the expression is not one that we can speak for."""


def byte_pattern(expression: str, *, ignore_case: bool) -> str | None:
    """The pattern for bytes and single lines, in ASCII; None for an *expression* with parts we cannot speak for.

    An *expression* that Python refuses may have a pattern all the same.
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
    except _Unknown:
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
    """Greedy, lazy and possessive ones differ in how much they take, never in whether there is more to find."""
    if max(len(least), len(most.removeprefix(","))) > REPETITION_DIGITS:
        raise _Unknown
    return f"{{{least or 0}{most}}}"


def _single(text: str, *, ignore_case: bool) -> str:
    """For what stands for one letter: the letter itself, an escape, or the dot."""
    if text == ".":
        return ANY
    if _is_class(text):
        return _one_of(_CLASSES[text[1]], and_beyond=True)
    letter = _meant(text)
    if letter == "\n":
        raise _Unknown
    if letter not in ASCII and (ignore_case or letter == "\N{REPLACEMENT CHARACTER}"):
        # Cases are for Python to know, and what it puts in the place of bytes that are not UTF-8 may be any of them.
        return ANY
    same = {letter.lower(), letter.upper(), *SAME_LETTERS.get(letter.lower(), "")} if ignore_case else {letter}
    return f"(?:{'|'.join(map(_bytes, sorted(same)))})"


def _is_class(text: str) -> bool:
    return text[0] == "\\" and text[1] in _CLASSES


def _meant(text: str) -> str:
    """The letter that *text*, which is a letter or an escape, stands for."""
    if text[0] != "\\":
        return text
    if text[1] in _CONTROLS:
        return _CONTROLS[text[1]]
    if text[1] in _WORD - {"_"}:
        raise _Unknown
    return text[1]


def _set(items: str, *, is_negated: bool, ignore_case: bool) -> str:
    if _WARNED_OF.search(items):
        raise _Unknown
    listed: set[str] = set()
    has_beyond = is_negated or ignore_case
    for item in _ITEM.finditer(items):
        first, last = item["first"], item["last"]
        if last is None and _is_class(first):
            listed |= _CLASSES[first[1]]
            has_beyond = True
        else:
            lowest, highest = _meant(first), _meant(last or first)
            listed |= {letter for letter in ASCII if lowest <= letter <= highest}
            has_beyond = has_beyond or highest not in ASCII
    if is_negated:
        # Of the letters that are the same where case is ignored, at least those that are listed are out.
        return _one_of(ASCII - listed, and_beyond=True)
    if ignore_case:
        listed |= {letter.swapcase() for letter in listed} | {*"iksIKS"}
    return _one_of(listed, and_beyond=has_beyond)


def _one_of(letters: Iterable[str], *, and_beyond: bool) -> str:
    """One of these *letters* of ASCII, or one beyond it."""
    inside = "".join(map(_bytes, sorted({*letters} - {"\n"})))
    if not inside and not and_beyond:
        raise _Unknown
    return "(?:" + "|".join([f"[{inside}]"] * bool(inside) + [BEYOND] * and_beyond) + ")"


def _bytes(letter: str) -> str:
    # An unpaired surrogate is in no text, so it may be written in any way.
    return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", "surrogatepass"))
