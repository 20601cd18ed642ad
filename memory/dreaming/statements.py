"""Facts in memory files, sentence by sentence, comparable wherever they are moved."""

import bisect
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence

import attrs

from coterie.memory.store.memory_index import index_lines
from coterie.memory.store.path_rules import INDEX

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


def comparison_key(text: str) -> str:
    """The words of *text* as they are compared; empty if there are none. Signs that may mean something are words."""
    words = (word.lstrip(_BEFORE).rstrip(_BEHIND) for word in unicodedata.normalize("NFKC", text).casefold().split())
    return " ".join(word for word in words if word and not _DASHES.issuperset(word))


def split_sentences(lines: Iterable[str], start: int = 0) -> Iterator[Sentence]:
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
        if key := comparison_key(said):
            first = start + len(said) - len(said.lstrip())
            lines = [
                paragraph[bisect.bisect_right(begins, at) - 1][0] for at in (first, start + len(said.rstrip()) - 1)
            ]
            yield Sentence(key=key, text=said.strip(), first=lines[0], last=lines[1])
        start = end


POINTER = "-> "
"""Begins the key of a line of the index; no sentence has such a key."""
LEAST_LETTERS = 3
"""Of a word that says what a text is about."""
STEM = 5
"""Letters that two forms of a word have in common."""

_KEY = re.compile(r"\s*(?:-\s+)?([A-Za-z_][\w-]*)\s*:\s*(.*)", re.DOTALL)
_NAMES = frozenset({"name", "type", "metadata"})
"""Fields that say what a memory is called, and of what kind it is: it may be called otherwise."""
_DESCRIPTION = "description"


@attrs.frozen(kw_only=True)
class StatedFact:
    """One thing that a file says."""

    key: str
    text: str
    first: int
    """The index of the line it begins in."""
    last: int

    @property
    def target(self) -> str | None:
        """Of a line of the index, the memory that it leads to."""
        return self.key.removeprefix(POINTER) if self.key.startswith(POINTER) else None


def split_lines(text: str) -> list[str]:
    """The lines of *text* with their ends; only a newline ends one."""
    return [line for line in re.split(r"(?<=\n)", text) if line]


def facts_in(path: str, text: str) -> list[StatedFact]:
    """All that the file *path* says."""
    lines = split_lines(text)
    if path == INDEX:
        return list(_facts_in_index(text, lines))
    body = _body_start(lines)
    return [*_facts_in_fields(lines[:body]), *map(_fact_of, split_sentences(lines[body:], body))]


def missing_facts(path: str, text: str) -> list[StatedFact]:
    """All that would be missed if the file *path* said nothing: not a description that only sums up the rest."""
    said = facts_in(path, text)
    body = _body_start(split_lines(text))
    rest = {word for each in said if each.first >= body for word in each.key.split()}
    return said if path == INDEX else [each for each in said if each.first >= body or not _is_summary(each, rest)]


def _facts_in_index(text: str, lines: Sequence[str]) -> Iterator[StatedFact]:
    pointers = {line.line - 1: line for line in index_lines(text)}
    for index, pointer in pointers.items():
        yield StatedFact(key=POINTER + pointer.path, text=lines[index].strip(), first=index, last=index)
    # As a blank line: what stands around a line of the index is no part of it.
    rest = ["" if index in pointers else line for index, line in enumerate(lines)]
    yield from map(_fact_of, split_sentences(rest))


def _facts_in_fields(lines: Sequence[str]) -> Iterator[StatedFact]:
    """Each line of the front matter says something of its own."""
    for index, line in enumerate(lines):
        field = _KEY.fullmatch(line)
        if field is not None and field[1].casefold() in _NAMES:
            continue
        text = field[2] if field is not None and field[1].casefold() == _DESCRIPTION else line
        if key := comparison_key(text):
            yield StatedFact(key=key, text=text.strip(), first=index, last=index)


def _body_start(lines: Sequence[str]) -> int:
    """The index of the first line behind the front matter; 0 if there is none."""
    if not lines or lines[0].strip("\ufeff \t\r\n") != "---":
        return 0
    return next((index for index, line in enumerate(lines[1:], 2) if line.rstrip() in ("---", "...")), 0)


def _is_summary(said: StatedFact, rest: Collection[str]) -> bool:
    """Whether *said* has a word in common with the *rest*, in some form, and no number that is not there."""
    stems = {_stem(word) for word in rest}
    words = said.key.split()
    has_news = any(word not in rest for word in words if any(sign.isdigit() for sign in word))
    return not has_news and any(_stem(word) in stems for word in words if len(word) >= LEAST_LETTERS)


def _stem(word: str) -> str:
    return re.split("['\u2019]", word)[0][:STEM]


def _fact_of(sentence: Sentence) -> StatedFact:
    return StatedFact(key=sentence.key, text=sentence.text, first=sentence.first, last=sentence.last)
