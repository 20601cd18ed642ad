"""Suggestions for a name that does not exist."""

import difflib
from collections.abc import Iterable

SIMILARITY = 0.5


def closest_match(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Up to *limit* of the *known* names that resemble *name*, the best first; case does not count."""
    by_folded = {candidate.casefold(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.casefold(), by_folded, n=limit, cutoff=SIMILARITY)
    return [by_folded[match] for match in matches]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What to say behind "there is no such *name*": the nearest ones, or else all of them."""
    known = sorted(known)
    if near := closest_match(name, known):
        return f"did you mean {' or '.join(near)}?"
    return f"there is {', '.join(known)}" if known else "there is none"
