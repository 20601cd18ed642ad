"""What a memory says, sentence by sentence: so that it can be found again wherever it was moved."""

import bisect
import re
import unicodedata
from collections.abc import Iterable, Iterator

import attrs

_BEFORE = "\"'`*([{|\u201c\u2018\u00ab"
"""What may stand before a word without being part of it."""
_BEHIND = ".,;:!?\"'`*)]}|\u2026\u201d\u2019\u00bb\u3002\uff01\uff1f\uff1b"
_DASHES = frozenset("-\u2013\u2014")
_MARK = re.compile(r"\s*(?:>\s*)*(?:(?:[-*+]|\d{1,3}[.)])\s+|#{1,6}\s+|\|)?")
"""What begins a line without being part of a sentence: quotes, bullets, numbers, headings, tables."""
_BEGINS = re.compile(r"\s*(?:>\s*)*(?:[-*+]\s|\d{1,3}[.)]\s|#{1,6}\s|\||```|~~~)")
_RULE = re.compile(r"\s*[-=_*]*\s*")
"""A line between paragraphs, drawn or blank, or under a heading."""
_FENCE = re.compile(r"\s*(```|~~~)")
_HEADING = re.compile(r"\s*(?:#{1,6}\s|\|)")
_END = re.compile(r"(?<=[.!?;])\s+|(?<=[\u3002\uff01\uff1f\uff1b])")


@attrs.frozen(kw_only=True)
class Sentence:
    """One sentence, in its place."""

    key: str
    """The same for all ways to write it: case, white space, punctuation and marks of Markdown make no difference."""
    text: str
    first: int
    """The index of the line it begins in."""
    last: int


def key_of(text: str) -> str:
    """The words of *text* as they are compared; empty if there are none. Signs that may mean something are words."""
    words = (word.lstrip(_BEFORE).rstrip(_BEHIND) for word in unicodedata.normalize("NFKC", text).casefold().split())
    return " ".join(word for word in words if word and not _DASHES.issuperset(word))


def sentences_of(lines: Iterable[str], start: int = 0) -> Iterator[Sentence]:
    """The sentences of Markdown, in order; the first line has the index *start*.

    A sentence may go over several lines of a paragraph. In a block of code each line is one.
    """
    paragraph: list[tuple[int, str]] = []
    is_code = False
    for index, line in enumerate(lines, start):
        is_fence = _FENCE.match(line) is not None
        is_rule = not is_code and _RULE.fullmatch(line) is not None
        if is_fence or is_code or is_rule or _BEGINS.match(line):
            yield from _split(paragraph)
            paragraph = []
        is_code ^= is_fence
        if is_fence or is_rule:
            continue
        paragraph.append((index, line.strip() if is_code else _MARK.sub("", line, count=1).strip()))
        if is_code or _HEADING.match(line):
            yield from _split(paragraph)
            paragraph = []
    yield from _split(paragraph)


def _split(paragraph: list[tuple[int, str]]) -> Iterator[Sentence]:
    """The sentences of one paragraph, whose lines come with their indexes."""
    text, begins = "", []
    for _, line in paragraph:
        begins.append(len(text))
        text += f"{line} "
    start = 0
    for end in [*(match.start() for match in _END.finditer(text)), len(text)]:
        said = text[start:end]
        if key := key_of(said):
            first = start + len(said) - len(said.lstrip())
            lines = [
                paragraph[bisect.bisect_right(begins, at) - 1][0] for at in (first, start + len(said.rstrip()) - 1)
            ]
            yield Sentence(key=key, text=said.strip(), first=lines[0], last=lines[1])
        start = end
