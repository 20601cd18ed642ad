"""What a memory claims about the project: the files and symbols that its text names."""

import re
from collections.abc import Iterator
from typing import Literal

import attrs

from coterie.memory.checking.finding import Memory
from coterie.memory.checking.markdown import code_spans, prose_lines, without_spans

_SUFFIX = re.compile(
    r"bash|c|cc|cfg|cjs|conf|cpp|cs|css|csv|dart|dockerfile|exs?|fish|go|gradle|graphql|h|hpp|html|ini|ipynb|java|jl|js"
    r"|jsonl?|jsx|kts?|less|lock|lua|m|mdx?|mjs|mk|php|pl|proto|ps1|pyi?|r|rb|rs|rst|sass|scala|scss|sh|sql|svelte|svg"
    r"|swift|tf|toml|tsx?|txt|vue|xml|ya?ml|zig|zsh",
    re.IGNORECASE,
)
"""Of files that people write and name."""
NOT_FILES = frozenset(("d3.js", "ember.js", "express.js", "next.js", "node.js", "nuxt.js", "three.js", "vue.js"))
_PATH = re.compile(r"[\w.@+-]+(?:/[\w.@+-]+)*/?")
_PLACE = re.compile(r"(?::\d+(?:[:-]\d+)?|#[\w.-]*)$")
"""A line or an anchor, behind a path."""
_IN_PROSE = re.compile(r"(?<![\w/:.@~$*{<\\-])(?:\./)?[\w.@+-]+(?:/[\w.@+-]+)+(?![\w/*<{(])")
_NAME = r"[^\W\d]\w*"
_SYMBOL = re.compile(rf"(?P<dotted>{_NAME}(?:(?:\.|::|#){_NAME})*)(?P<call>\([^()]*\))?")
_FLAG = re.compile(r"(--[A-Za-z0-9][\w-]*)(?:[= ].*)?")
_SEPARATOR = re.compile(r"\.|::|#")


@attrs.frozen(kw_only=True)
class Claim:
    """A name in a memory of something that should be in the project."""

    path: str
    """Of the memory."""
    line: int
    kind: Literal["file", "directory", "symbol"]
    """directory: a name with slashes that may be a place in the project, or a branch, or something else."""
    name: str
    """As it is looked for."""
    shown: str
    """As the memory writes it."""


def claims_of(memory: Memory) -> list[Claim]:
    """What *memory* names, each once: paths anywhere in its prose, symbols in back-ticks. Fenced code is none."""
    found: dict[tuple[str, str], Claim] = {}
    for line, text in prose_lines(memory.topic.body, memory.body_line):
        for kind, name, shown in _named(text):
            found.setdefault((kind, name), Claim(path=memory.path, line=line, kind=kind, name=name, shown=shown))
    return list(found.values())


def _named(line: str) -> Iterator[tuple[Literal["file", "directory", "symbol"], str, str]]:
    for span in code_spans(line):
        if (kind := _kind_of_path(_bare(span))) is not None:
            yield kind, _bare(span), span
        elif (symbol := _symbol(span)) is not None:
            yield "symbol", symbol, span
    for match in _IN_PROSE.findall(without_spans(line)):
        path = _bare(match.rstrip("."))
        if _kind_of_path(path) == "file":
            yield "file", path, path


def _bare(text: str) -> str:
    return _PLACE.sub("", text).removeprefix("./")


def _kind_of_path(text: str) -> Literal["file", "directory"] | None:
    """What *text* names if it is a relative path; None for anything else, a URL or a pattern among them.

    A slash at its end says what it is as well as a suffix does.
    """
    if not _PATH.fullmatch(text) or ".." in text or text.startswith(("-", "@")):
        return None
    if text.endswith("/"):
        return "file"
    name = text.rpartition("/")[2]
    stem, dot, suffix = name.rpartition(".")
    if dot and stem and _SUFFIX.fullmatch(suffix) and name.lower() not in NOT_FILES:
        return "file"
    return "directory" if "/" in text else None


def _symbol(text: str) -> str | None:
    """The word to look for if *text* names a function, a class, a constant or a flag; None for an everyday word."""
    if flag := _FLAG.fullmatch(text):
        return flag[1]
    match = _SYMBOL.fullmatch(text)
    if match is None or text.lower() in NOT_FILES:
        return None
    last = _SEPARATOR.split(match["dotted"])[-1]
    return last if match["call"] or last != match["dotted"] or _looks_made(last) else None


def _looks_made(word: str) -> bool:
    """Whether *word* is written as programs write names: `snake_case`, `CamelCase`, `UPPER_CASE`."""
    inner = word.strip("_")
    return "_" in inner or (not inner.isupper() and any(c.isupper() for c in inner[1:]))
