"""What a file of a store says that must not get lost: its sentences, and which memories an index leads to."""

import re
from collections.abc import Collection, Iterator, Sequence

import attrs

from coterie.memory.dreaming.sentences import Sentence, key_of, sentences_of
from coterie.memory.store.index import INDEX, index_lines

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
class Said:
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


def said_in(path: str, text: str) -> list[Said]:
    """All that the file *path* says."""
    lines = split_lines(text)
    if path == INDEX:
        return list(_said_in_index(text, lines))
    body = _body(lines)
    return [*_said_in_fields(lines[:body]), *map(_said, sentences_of(lines[body:], body))]


def missed_in(path: str, text: str) -> list[Said]:
    """All that would be missed if the file *path* said nothing: not a description that only sums up the rest."""
    said = said_in(path, text)
    body = _body(split_lines(text))
    rest = {word for each in said if each.first >= body for word in each.key.split()}
    return said if path == INDEX else [each for each in said if each.first >= body or not _sums_up(each, rest)]


def _said_in_index(text: str, lines: Sequence[str]) -> Iterator[Said]:
    pointers = {line.line - 1: line for line in index_lines(text)}
    for index, pointer in pointers.items():
        yield Said(key=POINTER + pointer.path, text=lines[index].strip(), first=index, last=index)
    # As a blank line: what stands around a line of the index is no part of it.
    rest = ["" if index in pointers else line for index, line in enumerate(lines)]
    yield from map(_said, sentences_of(rest))


def _said_in_fields(lines: Sequence[str]) -> Iterator[Said]:
    """Each line of the front matter says something of its own."""
    for index, line in enumerate(lines):
        field = _KEY.fullmatch(line)
        if field is not None and field[1].casefold() in _NAMES:
            continue
        text = field[2] if field is not None and field[1].casefold() == _DESCRIPTION else line
        if key := key_of(text):
            yield Said(key=key, text=text.strip(), first=index, last=index)


def _body(lines: Sequence[str]) -> int:
    """The index of the first line behind the front matter; 0 if there is none."""
    if not lines or lines[0].strip("\ufeff \t\r\n") != "---":
        return 0
    return next((index for index, line in enumerate(lines[1:], 2) if line.rstrip() in ("---", "...")), 0)


def _sums_up(said: Said, rest: Collection[str]) -> bool:
    """Whether *said* has a word in common with the *rest*, in some form, and no number that is not there."""
    stems = {_stem(word) for word in rest}
    words = said.key.split()
    has_news = any(word not in rest for word in words if any(sign.isdigit() for sign in word))
    return not has_news and any(_stem(word) in stems for word in words if len(word) >= LEAST_LETTERS)


def _stem(word: str) -> str:
    return re.split("['\u2019]", word)[0][:STEM]


def _said(sentence: Sentence) -> Said:
    return Said(key=sentence.key, text=sentence.text, first=sentence.first, last=sentence.last)
