"""Splitting of memory files into facts (sentences, fields, index lines), to find a fact again in another file."""

import bisect
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence

import attrs

from coterie.memory.store.memory_index import index_lines
from coterie.memory.store.path_rules import INDEX

_BEFORE = "\"'`*([{|\u201c\u2018\u00ab"
"""Punctuation that `comparison_key` removes from the start of a word."""
_BEHIND = ".,;:!?\"'`*)]}|\u2026\u201d\u2019\u00bb\u3002\uff01\uff1f\uff1b"
_DASHES = frozenset("-\u2013\u2014")
_MARK = re.compile(r"\s*(?:>\s*)*(?:(?:[-*+]|\d{1,3}[.)])\s+|#{1,6}\s+|\|)?")
"""Matches the Markdown at the start of a line that is no part of a sentence: quote, bullet, number, heading, table."""
_BEGINS = re.compile(r"\s*(?:>\s*)*(?:[-*+]\s|\d{1,3}[.)]\s|#{1,6}\s|\||```|~~~)")
_RULE = re.compile(r"\s*[-=_*]*\s*")
"""Matches a line without text: a blank line, a horizontal rule, or the underline of a heading."""
_FENCE = re.compile(r"\s*(```|~~~)")
_HEADING = re.compile(r"\s*(?:#{1,6}\s|\|)")
_END = re.compile(r"(?<=[.!?;])\s+|(?<=[\u3002\uff01\uff1f\uff1b])")


POINTER = "-> "
"""Prefix of the comparison key of an index line (a link to a memory); the key of a sentence never has it."""
LEAST_LETTERS = 3
"""Minimum length of the words that are compared to detect a field that only summarizes the text of its memory."""
STEM = 5
"""Number of first letters by which words are compared, so that forms such as "deploy" and "deploys" are equal."""

_KEY = re.compile(r"\s*(?:-\s+)?([A-Za-z_][\w-]*)\s*:\s*(.*)", re.DOTALL)
_NAMES = frozenset({"name", "type", "metadata"})
"""Front matter fields with the name and type of a memory; they are no facts, so a dream may change them."""


@attrs.frozen(kw_only=True)
class StatedFact:
    """One fact that a memory file states: a sentence, a field of the front matter, or a line of the index."""

    key: str
    """Text to compare facts with: `-> path` of an index line, else the words without case, punctuation and Markdown."""
    text: str
    first: int
    """Index of the first line of the fact in its file, from 0."""
    last: int

    @property
    def target(self) -> str | None:
        """Path of the memory to which an index line links; None for a sentence or a field."""
        return self.key.removeprefix(POINTER) if self.key.startswith(POINTER) else None


def comparison_key(text: str) -> str:
    """Return the words of *text* in lower case, without punctuation around them, joined by spaces; may be empty."""
    words = (word.lstrip(_BEFORE).rstrip(_BEHIND) for word in unicodedata.normalize("NFKC", text).casefold().split())
    return " ".join(word for word in words if word and not _DASHES.issuperset(word))


def split_sentences(lines: Iterable[str], start: int = 0) -> Iterator[StatedFact]:
    """Yield the sentences of the Markdown *lines* as facts, in order; *start* is the index of the first line.

    A sentence may span several lines of a paragraph. In a code block each line is a sentence.
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


def _split(paragraph: list[tuple[int, str]]) -> Iterator[StatedFact]:
    """Yield the sentences of one *paragraph*, given as pairs of line index and line, as facts."""
    text, begins = "", []
    for _, line in paragraph:
        begins.append(len(text))
        text += f"{line} "
    start = 0
    for end in [*(match.start() for match in _END.finditer(text)), len(text)]:
        said = text[start:end]
        if key := comparison_key(said):
            first = start + len(said) - len(said.lstrip())
            lines = [
                paragraph[bisect.bisect_right(begins, at) - 1][0] for at in (first, start + len(said.rstrip()) - 1)
            ]
            yield StatedFact(key=key, text=said.strip(), first=lines[0], last=lines[1])
        start = end


def split_lines(text: str) -> list[str]:
    """Split *text* into lines that keep their newline; other line separators, such as a form feed, do not split."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def facts_in(path: str, text: str) -> list[StatedFact]:
    """Return the facts in *text*, the content of the memory file *path*: sentences, and fields or index lines."""
    lines = split_lines(text)
    if path == INDEX:
        return list(_facts_in_index(text, lines))
    body = _body_start(lines)
    return [*_facts_in_fields(lines[:body]), *split_sentences(lines[body:], body)]


def missing_facts(path: str, text: str) -> list[StatedFact]:
    """Return the facts of the file *path* that must not be lost: all but fields that only summarize its text."""
    said = facts_in(path, text)
    body = _body_start(split_lines(text))
    rest = {word for each in said if each.first >= body for word in each.key.split()}
    return said if path == INDEX else [each for each in said if each.first >= body or not _is_summary(each, rest)]


def _facts_in_index(text: str, lines: Sequence[str]) -> Iterator[StatedFact]:
    pointers = {line.line - 1: line for line in index_lines(text)}
    for index, pointer in pointers.items():
        yield StatedFact(key=POINTER + pointer.path, text=lines[index].strip(), first=index, last=index)
    # Index lines become blank lines, because the text around them is separate.
    rest = ["" if index in pointers else line for index, line in enumerate(lines)]
    yield from split_sentences(rest)


def _facts_in_fields(lines: Sequence[str]) -> Iterator[StatedFact]:
    """Yield one fact for each front matter line, except fields `name`, `type`, `metadata`, and lines without words."""
    for index, line in enumerate(lines):
        field = _KEY.fullmatch(line)
        if field is not None and field[1].casefold() in _NAMES:
            continue
        text = field[2] if field is not None and field[1].casefold() == "description" else line
        if key := comparison_key(text):
            yield StatedFact(key=key, text=text.strip(), first=index, last=index)


def _body_start(lines: Sequence[str]) -> int:
    """Return the index of the first line after the front matter; 0 if there is no complete front matter."""
    if not lines or lines[0].strip("\ufeff \t\r\n") != "---":
        return 0
    return next((index for index, line in enumerate(lines[1:], 2) if line.rstrip() in ("---", "...")), 0)


def _is_summary(said: StatedFact, rest: Collection[str]) -> bool:
    """True if the field *said* shares a word stem with its memory's text (words *rest*) and has no new number."""
    stems = {_stem(word) for word in rest}
    words = said.key.split()
    has_news = any(word not in rest for word in words if any(sign.isdigit() for sign in word))
    return not has_news and any(_stem(word) in stems for word in words if len(word) >= LEAST_LETTERS)


def _stem(word: str) -> str:
    return re.split("['\u2019]", word)[0][:STEM]
