"""References of memories to files and symbols of the project, and which of them are missing."""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal

import attrs

from coterie.memory.checking.file_checks import code_spans, prose_lines, without_spans
from coterie.memory.checking.issue import CheckedMemory

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
class ProjectReference:
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


def find_references(memory: CheckedMemory) -> list[ProjectReference]:
    """What *memory* names, each once: paths anywhere in its prose, symbols in back-ticks. Fenced code is none."""
    found: dict[tuple[str, str], ProjectReference] = {}
    for line, text in prose_lines(memory.entry.body, memory.body_line):
        for kind, name, shown in _named(text):
            found.setdefault(
                (kind, name), ProjectReference(path=memory.path, line=line, kind=kind, name=name, shown=shown)
            )
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
    return last if match["call"] or last != match["dotted"] or _is_identifier(last) else None


def _is_identifier(word: str) -> bool:
    """Whether *word* is written as programs write names: `snake_case`, `CamelCase`, `UPPER_CASE`."""
    inner = word.strip("_")
    return "_" in inner or (not inner.isupper() and any(c.isupper() for c in inner[1:]))


FILE_LIMIT = 100_000
"""Files of a project that are looked at."""
SIZE_LIMIT = 1_000_000
"""Bytes of a file in which symbols are looked for: what is larger was not written by hand."""
TOTAL_LIMIT = 500_000_000
"""Bytes of all files in which symbols are looked for."""
SKIPPED = frozenset(("node_modules", "__pycache__", "venv", "build", "dist", "target", "vendor", "site-packages"))
"""Directories that hold what others wrote, or what is made anew; dot directories are passed over too."""
DOCUMENTS = frozenset((".md", ".mdx", ".rst", ".txt", ".adoc"))
"""Prose goes on naming what has left the code."""
_WORDS = re.compile(r"--[A-Za-z0-9][\w-]*|[^\W\d]\w*")


@attrs.frozen(kw_only=True)
class MissingReferences:
    """What was looked for."""

    claims: tuple[ProjectReference, ...]
    """Those whose file or symbol is nowhere."""
    judged: int
    """How many were looked for; others cannot be told."""
    note: str | None
    """Why symbols were not looked for everywhere."""


@attrs.define(eq=False)
class _ProjectFiles:
    """The files of a project, by their names."""

    root: Path
    files: list[str] = attrs.field(factory=list)
    """Relative, with slashes."""
    by_name: dict[str, list[str]] = attrs.field(factory=dict)
    """The last part of a path -> files and directories."""
    is_whole: bool = True

    def add(self, path: str) -> None:
        self.by_name.setdefault(path.rpartition("/")[2], []).append(path)


def find_missing(claims: Iterable[ProjectReference], project: Path, memories: Collection[Path]) -> MissingReferences:
    """Which of the *claims* name what is not in *project*; what is in the directories *memories* does not count.

    A path counts as there if some file's path ends with it, or if a memory has that name; a symbol, if it stands as a
    word in a file that is no prose. One pass over the tree, bounded; what could be beyond the bound is not judged.
    Blocks on the disk; what cannot be read counts as absent.
    """
    tree = _walk(project, [Path(os.path.realpath(path)) for path in memories])
    named = list(claims)
    paths = [claim for claim in named if _is_path_reference(tree, claim)]
    absent = [claim for claim in paths if not _is_there(tree, claim.name, memories)] if tree.is_whole else []
    symbols = [claim for claim in named if claim.kind == "symbol"]
    missing, note = _missing_symbols(tree, {claim.name for claim in symbols})
    gone = {*absent, *(claim for claim in symbols if claim.name in missing)}
    judged = (len(paths) if tree.is_whole else 0) + (0 if note else len(symbols))
    return MissingReferences(claims=tuple(claim for claim in named if claim in gone), judged=judged, note=note)


def _walk(project: Path, left_out: Collection[Path]) -> _ProjectFiles:
    tree = _ProjectFiles(Path(os.path.realpath(project)))
    for directory, below, names in os.walk(tree.root):
        here = Path(directory)
        below[:] = sorted(name for name in below if not _is_skipped(here / name) and here / name not in left_out)
        prefix = "" if here == tree.root else f"{here.relative_to(tree.root).as_posix()}/"
        for name in below:
            tree.add(prefix + name)
        for name in sorted(names):
            if len(tree.files) == FILE_LIMIT:
                tree.is_whole = False
                return tree
            tree.files.append(prefix + name)
            tree.add(prefix + name)
    return tree


def _is_skipped(path: Path) -> bool:
    return (path.name.startswith(".") and path.name != ".github") or path.name in SKIPPED


def _is_path_reference(tree: _ProjectFiles, claim: ProjectReference) -> bool:
    """Without a suffix a name with slashes may be a branch or a type of media: it counts if it begins as the tree."""
    if claim.kind == "directory":
        return (tree.root / claim.name.partition("/")[0]).is_dir()
    return claim.kind == "file"


def _is_there(tree: _ProjectFiles, name: str, memories: Collection[Path]) -> bool:
    # Asked of the disk first: the walk passes over what git ignores, and a memory may name that.
    name = name.rstrip("/")
    if any(os.path.lexists(place / name) for place in (tree.root, *memories)):
        return True
    ending = f"/{name}"
    return any(f"/{path}".endswith(ending) for path in tree.by_name.get(name.rpartition("/")[2], ()))


def _missing_symbols(tree: _ProjectFiles, words: set[str]) -> tuple[set[str], str | None]:
    """The *words* that stand in no source, and why that cannot be told if it cannot; then none is missing."""
    missing, size, count = set(words), 0, 0
    if not words:
        return set(), None
    for text in _sources(tree):
        count += 1
        size += len(text)
        missing.difference_update(_WORDS.findall(text))
        if not missing:
            return set(), None
        if size > TOTAL_LIMIT:
            return set(), f"symbols were not looked for: the project has more than {TOTAL_LIMIT:,} bytes of text"
    if not tree.is_whole:
        return set(), f"symbols were not looked for: the project has more than {FILE_LIMIT:,} files"
    return (missing, None) if count else (set(), "symbols were not looked for: the project has no sources")


def _sources(tree: _ProjectFiles) -> Iterator[str]:
    for name in tree.files:
        path = tree.root / name
        if path.suffix.lower() in DOCUMENTS:
            continue
        try:
            # A pipe would wait for its other end, and a link may lead anywhere.
            if path.is_symlink() or not path.is_file() or path.stat().st_size > SIZE_LIMIT:
                continue
            content = path.read_bytes()
        except OSError:
            continue
        if b"\0" not in content[:8_192]:
            yield content.decode("utf-8", "replace")
