"""Suggestions of known names, for the error message about an unknown name."""

import difflib
from collections.abc import Iterable

SIMILARITY = 0.5


def closest_match(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Return up to *limit* of the *known* names similar to *name*, best match first; ignores case."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.casefold(), by_folded, n=limit, cutoff=SIMILARITY)
    return [by_folded[match] for match in matches]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint for the error about an unknown *name*: the similar *known* names, or else all *known* names."""
    known = sorted(known)
    if near := closest_match(name, known):
        return f"did you mean {' or '.join(near)}?"
    return f"there is {', '.join(known)}" if known else "there is none"
