"""References in memories to files and symbols of the project, and a search for those that do not exist there."""

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
"""File name suffixes, such as `py` in `app.py`, by which a name in a memory is recognized as a file."""
NOT_FILES = frozenset(("d3.js", "ember.js", "express.js", "next.js", "node.js", "nuxt.js", "three.js", "vue.js"))
_PATH = re.compile(r"[\w.@+-]+(?:/[\w.@+-]+)*/?")
_PLACE = re.compile(r"(?::\d+(?:[:-]\d+)?|#[\w.-]*)$")
"""Pattern of a line number or an anchor after a path, such as `:12` or `#install`, which is removed."""
_IN_PROSE = re.compile(r"(?<![\w/:.@~$*{<\\-])(?:\./)?[\w.@+-]+(?:/[\w.@+-]+)+(?![\w/*<{(])")
_NAME = r"[^\W\d]\w*"
_SYMBOL = re.compile(rf"(?P<dotted>{_NAME}(?:(?:\.|::|#){_NAME})*)(?P<call>\([^()]*\))?")
_FLAG = re.compile(r"(--[A-Za-z0-9][\w-]*)(?:[= ].*)?")
_SEPARATOR = re.compile(r"\.|::|#")


@attrs.frozen(kw_only=True)
class ProjectReference:
    """A name in a memory that refers to a file, directory or symbol (function, class, option) of the project."""

    path: str
    """Path of the memory file in which the name occurs, relative to the store."""
    line: int
    kind: Literal["file", "directory", "symbol"]
    """Kind: "file" (surely a path, also `src/`), "directory" (`a/b`: a path or a branch), "symbol" (name in code)."""
    name: str
    """Name to search for: a path without line number, or the last part of a symbol, such as `run` for `app.run()`."""
    shown: str
    """Name as it is written in the memory, for messages."""


def find_references(memory: CheckedMemory) -> list[ProjectReference]:
    """Return the references in *memory*, each once: file paths anywhere but in code blocks, symbols in backticks."""
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
    """Return "file" if *text* is certainly a relative path, "directory" if it may be one, None for other text.

    A trailing slash identifies a path as reliably as a file suffix does. URLs and patterns are other text.
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
    """Return the identifier to search for, such as `run` for `app.run()`; None if *text* is no symbol or option."""
    if flag := _FLAG.fullmatch(text):
        return flag[1]
    match = _SYMBOL.fullmatch(text)
    if match is None or text.lower() in NOT_FILES:
        return None
    last = _SEPARATOR.split(match["dotted"])[-1]
    if match["call"] or last != match["dotted"]:
        return last
    # Other words need the form of an identifier: `snake_case`, `CamelCase`, `UPPER_CASE`.
    inner = last.strip("_")
    return last if "_" in inner or (not inner.isupper() and any(c.isupper() for c in inner[1:])) else None


FILE_LIMIT = 100_000
"""Largest number of project files that are listed; in a larger project, nothing is reported as missing."""
SIZE_LIMIT = 1_000_000
"""Size in bytes of the largest file that is searched for symbols; larger files are usually generated."""
TOTAL_LIMIT = 500_000_000
"""Largest amount of text in characters that is searched for symbols; with more, no symbol is reported as missing."""
SKIPPED = frozenset(("node_modules", "__pycache__", "venv", "build", "dist", "target", "vendor", "site-packages"))
"""Names of directories that are not searched (third-party or generated); nor are dot directories except `.github`."""
DOCUMENTS = frozenset((".md", ".mdx", ".rst", ".txt", ".adoc"))
"""Suffixes of prose files, which are not searched for symbols, because they may mention deleted ones."""
_WORDS = re.compile(r"--[A-Za-z0-9][\w-]*|[^\W\d]\w*")


@attrs.frozen(kw_only=True)
class MissingReferences:
    """Result of searching the project for the files and symbols that memories mention."""

    claims: tuple[ProjectReference, ...]
    """References in memories to files and symbols that do not exist in the project."""
    judged: int
    """Number of references that were searched for, found or missing."""
    note: str | None
    """Line for the user with the reason why symbols could not be checked; None if they were checked."""


@attrs.define(eq=False)
class _ProjectFiles:
    """Result of scanning a project directory: the paths of its files and directories, indexed by name."""

    root: Path
    files: list[str] = attrs.field(factory=list)
    """Paths of the project's files relative to `root`, with `/` as separator."""
    by_name: dict[str, list[str]] = attrs.field(factory=dict)
    """Maps the last component of a path, such as `app.py`, to all relative paths of files and directories with it."""
    is_whole: bool = True

    def add(self, path: str) -> None:
        self.by_name.setdefault(path.rpartition("/")[2], []).append(path)


def find_missing(claims: Iterable[ProjectReference], project: Path, memories: Collection[Path]) -> MissingReferences:
    """Search the directory *project* for the references *claims*, and return those to missing files and symbols.

    A path exists if it ends the path of a file or directory, or is in a directory of *memories*. A name without suffix
    is a path if its first part is a directory. A symbol exists if it is a word in a file outside prose and *memories*.
    With too many files nothing, with too much text no symbol is reported. Blocks. Skips unreadable files.
    """
    tree = _walk(project, [Path(os.path.realpath(path)) for path in memories])
    named = list(claims)
    paths = [
        claim
        for claim in named
        # A name without suffix is a path only if its first component is a directory.
        if claim.kind == "file" or (claim.kind == "directory" and (tree.root / claim.name.partition("/")[0]).is_dir())
    ]
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
        hidden = {name for name in below if name.startswith(".") and name != ".github"}
        below[:] = sorted(name for name in set(below) - hidden - SKIPPED if here / name not in left_out)
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


def _is_there(tree: _ProjectFiles, name: str, memories: Collection[Path]) -> bool:
    # The disk is checked first, because the scan skips directories that a memory may mention.
    name = name.rstrip("/")
    if any(os.path.lexists(place / name) for place in (tree.root, *memories)):
        return True
    ending = f"/{name}"
    return any(f"/{path}".endswith(ending) for path in tree.by_name.get(name.rpartition("/")[2], ()))


def _missing_symbols(tree: _ProjectFiles, words: set[str]) -> tuple[set[str], str | None]:
    """Return the *words* that are in no source file, and None; after an incomplete search, no words and the reason."""
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
            return set(), f"symbols in memories were not checked: more than {TOTAL_LIMIT:,} characters in the project"
    if not tree.is_whole:
        return set(), f"symbols in memories were not checked: more than {FILE_LIMIT:,} files in the project"
    return (missing, None) if count else (set(), "symbols in memories were not checked: no source files in the project")


def _sources(tree: _ProjectFiles) -> Iterator[str]:
    for name in tree.files:
        path = tree.root / name
        if path.suffix.lower() in DOCUMENTS:
            continue
        try:
            # Reading a pipe would block, and a link may point anywhere.
            if path.is_symlink() or not path.is_file() or path.stat().st_size > SIZE_LIMIT:
                continue
            content = path.read_bytes()
        except OSError:
            continue
        if b"\0" not in content[:8_192]:
            yield content.decode("utf-8", "replace")
