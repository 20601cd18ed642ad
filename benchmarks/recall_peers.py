"""Baselines for local recall: plain BM25 over all files, and the newest files."""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping

import attrs

Tokens = Callable[[str], list[str]]
K1 = 1.2
B = 0.75


def simple_tokens(text: str) -> list[str]:
    """Runs of letters and digits in lower case, without stop words and stemming."""
    return re.findall(r"\w+", text.lower())


@attrs.define(eq=False)
class PlainBm25:
    """Scores every file for every query, without a cache."""

    _tokens: Tokens
    _counts: dict[str, Counter[str]]
    _files: Counter[str]
    _average: float

    @classmethod
    def of(cls, texts: Mapping[str, str], tokens: Tokens) -> "PlainBm25":
        """Prepare to rank *texts*, by name."""
        counts = {name: Counter(tokens(text)) for name, text in texts.items()}
        files = Counter(word for count in counts.values() for word in count)
        return cls(tokens, counts, files, sum(count.total() for count in counts.values()) / len(counts))

    def rank(self, query: str, k: int = 5) -> list[str]:
        """Return the names of the best files, best first."""
        words = self._tokens(query)
        scores = {name: self._score(words, count) for name, count in self._counts.items()}
        return sorted((name for name in scores if scores[name] > 0), key=lambda name: -scores[name])[:k]

    def _score(self, words: list[str], count: Counter[str]) -> float:
        norm = K1 * (1 - B + B * count.total() / self._average)
        total = len(self._counts)
        return sum(
            math.log(1 + (total - self._files[word] + 0.5) / (self._files[word] + 0.5))
            * (count[word] * (K1 + 1) / (count[word] + norm))
            for word in words
            if word in count
        )
