"""Tokenizer for the search in memories: splits texts and queries, in any language, into comparable words."""

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence

SHORTEST = 4
"""Minimum length of a word for `stem` to remove its endings; a shorter word stays unchanged."""

_VOWEL = re.compile(r"[aeiou]|(?<=[^aeiou])y")
_SYLLABLE = re.compile(r"(?:[aeiou]|(?<=[^aeiou])y)+[^aeiouy]+")
_DOUBLED = re.compile(r"([bdfgmnprt])\1$")
_SHORT = re.compile(r"(?:^|[^aeiou])[aeiouy][^aeiouwxy]$")

_LONG_ENDINGS: Sequence[tuple[str, str]] = (
    ("ational", "ate"),
    ("ization", "ize"),
    ("isation", "ize"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("iveness", "ive"),
    ("biliti", "ble"),
    ("tional", "tion"),
    ("ation", "ate"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("entli", "ent"),
    ("ousli", "ous"),
    ("ness", ""),
    ("alli", "al"),
    ("ator", "ate"),
    ("ise", "ize"),
    ("li", ""),
)
"""English endings and their replacements; only the first match is replaced, and only after at least one syllable."""
_LAST_ENDINGS = ("ement", "ance", "ence", "able", "ible", "ment", "ate", "ive", "ize", "ous", "ant", "ent", "ful",
                 "ism", "ist", "ion", "al", "er", "ic")  # fmt: skip
"""Endings of words that are removed if at least two syllables precede them; `ion` only after `s` or `t`."""


@functools.lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return the English stem of the lower-case *word*: `deploy` for `deploying`; other alphabets stay unchanged."""
    if len(word) < SHORTEST or not (word.isascii() and word.isalpha()):
        return word
    word = _without_tense(_without_plural(word))
    if word.endswith("y") and len(word) > 2 and word[-2] not in "aeiou":
        word = f"{word[:-1]}i"
    return _without_last(_without_long(word))


def _without_plural(word: str) -> str:
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("ies"):
        return f"{word[:-3]}{'i' if len(word) > 4 else 'ie'}"
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _without_tense(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _syllables(word[:-3]) else word
    for ending in ("ing", "ed"):
        base = word.removesuffix(ending)
        if base != word and len(base) > 1 and _VOWEL.search(base):
            return _restore_base(base)
    return word


def _restore_base(base: str) -> str:
    """Return the base form of a word without its `ing` or `ed`: `hop` for `hopp(ing)`, `hope` for `hop(ing)`."""
    if base.endswith(("at", "bl", "is", "iz")):
        return f"{base}e"
    if _DOUBLED.search(base):
        return base[:-1]
    return f"{base}e" if _syllables(base) == 1 and _SHORT.search(base) else base


def _without_long(word: str) -> str:
    for ending, instead in _LONG_ENDINGS:
        base = word.removesuffix(ending)
        if base != word:
            return f"{base}{instead}" if _syllables(base) else word
    return word


def _without_last(word: str) -> str:
    for ending in _LAST_ENDINGS:
        base = word.removesuffix(ending)
        if base != word:
            is_noun = ending != "ion" or base.endswith(("s", "t"))
            word = base if is_noun and _syllables(base) > 1 else word
            break
    if word.endswith("e") and (_syllables(word[:-1]) > 1 or not _SHORT.search(word[:-1])):
        word = word[:-1]
    return word[:-1] if word.endswith("ll") and _syllables(word) > 1 else word


def _syllables(word: str) -> int:
    """Count the syllables of *word*: groups of vowels that are followed by a consonant."""
    return len(_SYLLABLE.findall(word))


LONGEST = 64
"""Maximum length of a word in characters; a longer word is cut."""
REMEMBERED = 65_536
"""Maximum number of different spellings (words as written in a text) whose search words are cached."""
SPELLED_OUT = 256
"""Maximum length, in characters, of a word or path as written in a text; the end of a longer one is ignored."""

STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any are aren as at be because been before being below between both but
    by can cannot could couldn d did didn do does doesn doing don down during each few for from further had hadn has
    hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself just let ll m
    me more most my myself no nor not now of off on once only or other our ours ourselves out over own please re s same
    she should shouldn so some such t than that the their theirs them themselves then there these they this those
    through to too under until up us ve very was wasn we were weren what when where which while who whom why will with
    won would wouldn you your yours yourself yourselves
    """.split()  # noqa: SIM905 - easier to read and to change
)
"""Frequent English words that a search ignores, unless the query has no other words."""

_HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA_AND_HANGUL = "\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff\uac00-\ud7af"
_UNSPACED = f"{_HAN}{_KANA_AND_HANGUL}\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
"""Characters of scripts without spaces, or with many endings: Han, Kana, Hangul, Thai, Lao, Burmese and Khmer."""
_RUNS = re.compile(f"([{_UNSPACED}]+)|([^{_UNSPACED}]+)")
_IS_HAN = re.compile(f"[{_HAN}]")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")
_ASCII_SPELLINGS = re.compile(r"\w+(?:[-./:@\\]+\w+)*", re.ASCII)
_JOINT = re.compile(r"[-._/:@\\]+")
_PIECES = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_ACCENTS = re.compile(r"[\u0300-\u036f]+")


def tokenize(text: str, *, stop_words: bool = False) -> list[str]:
    """Return the word stems of *text* in order, for a search; with stop words such as `the` only if *stop_words*.

    A code name or path, such as `getUserName` or `src/a_b.py`, gives its parts and itself. In scripts without spaces
    each pair of adjacent characters is a word, and so is each Han character.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    spellings = _ASCII_SPELLINGS if text.isascii() else _spellings()
    found: list[str] = []
    for spelling in spellings.findall(_THOUSANDS.sub("", text)):
        found += _split_spelling(spelling[:SPELLED_OUT], stop_words)
    return found


def is_single_token(text: str) -> bool:
    """True if *text* is at most one word. Three or more characters of a script without spaces are several words."""
    return len(text.split(maxsplit=2)) < 2 and not any(len(run) > 2 for run, _ in _RUNS.findall(text))


@functools.cache
def _spellings() -> re.Pattern[str]:
    """Compile the pattern of a word, path or code name in any script; `-`, `.`, `/` and others join its parts."""
    marks = "".join(mark for mark in map(chr, range(0x300, 0x10000)) if unicodedata.category(mark) in ("Mn", "Mc"))
    return re.compile(rf"[\w{marks}]+(?:[-./:@\\]+[\w{marks}]+)*")


@functools.lru_cache(maxsize=REMEMBERED)
def _split_spelling(spelling: str, stop_words: bool) -> tuple[str, ...]:
    parts = [part for part in _JOINT.split(spelling) if part]
    words: list[str] = []
    for unspaced, spaced in (run for part in parts for run in _RUNS.findall(part)):
        words += _pairs(_fold(unspaced)) if unspaced else _pieces(spaced)
    if len(parts) > 1:
        words.append("_".join(map(_fold, parts))[:LONGEST])
    return tuple(stem(word) for word in words if word and (stop_words or word not in STOP_WORDS))


def _pieces(word: str) -> Iterator[str]:
    """Yield the parts of a compound name, such as `getUserName` or `utf8`, and *word* itself, in lower case."""
    pieces = _PIECES.findall(word) if word.isascii() else []
    return iter(dict.fromkeys(_fold(piece)[:LONGEST] for piece in [*pieces, word]))


def _pairs(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
        return
    for first, second in itertools.pairwise(run):
        yield first + second
    yield from _IS_HAN.findall(run)


def _fold(word: str) -> str:
    """Return *word* in lower case and without accents; marks that are vowels of their script are kept."""
    word = word.casefold()
    if word.isascii():
        return word
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", word)))
