"""A rough and quick stemmer for English words."""

import functools
import re
from collections.abc import Sequence

SHORTEST = 4
"""Letters of a word that has an ending worth taking off."""

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
"""What is made of an ending behind at least one syllable; the longest that fits counts."""
_LAST_ENDINGS = ("ement", "ance", "ence", "able", "ible", "ment", "ate", "ive", "ize", "ous", "ant", "ent", "ful",
                 "ism", "ist", "ion", "al", "er", "ic")  # fmt: skip
"""Endings that go behind at least two syllables."""


@functools.lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """What is left of *word*, which is in lower case; words of other alphabets stay as they are."""
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
    """*base* as it was before `ing` or `ed` came: `hop` for `hopp`, `hope` for `hop` of `hoping`."""
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
    """How often a vowel is followed by a consonant."""
    return len(_SYLLABLE.findall(word))
