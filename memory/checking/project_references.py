"""References of memories to files and symbols of the project, and detection of missing ones."""

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
"""Suffixes of files that people write and mention."""
NOT_FILES = frozenset(("d3.js", "ember.js", "express.js", "next.js", "node.js", "nuxt.js", "three.js", "vue.js"))
_PATH = re.compile(r"[\w.@+-]+(?:/[\w.@+-]+)*/?")
_PLACE = re.compile(r"(?::\d+(?:[:-]\d+)?|#[\w.-]*)$")
"""A line number or an anchor after a path."""
_IN_PROSE = re.compile(r"(?<![\w/:.@~$*{<\\-])(?:\./)?[\w.@+-]+(?:/[\w.@+-]+)+(?![\w/*<{(])")
_NAME = r"[^\W\d]\w*"
_SYMBOL = re.compile(rf"(?P<dotted>{_NAME}(?:(?:\.|::|#){_NAME})*)(?P<call>\([^()]*\))?")
_FLAG = re.compile(r"(--[A-Za-z0-9][\w-]*)(?:[= ].*)?")
_SEPARATOR = re.compile(r"\.|::|#")


@attrs.frozen(kw_only=True)
class ProjectReference:
    """A mention of a file, directory or symbol of the project."""

    path: str
    """Path of the memory that mentions the name."""
    line: int
    kind: Literal["file", "directory", "symbol"]
    """"directory" is a name with slashes that may be a path, a branch or something else."""
    name: str
    """Mentioned name, normalised for the search."""
    shown: str
    """Mentioned name as written in the memory."""


def find_references(memory: CheckedMemory) -> list[ProjectReference]:
    """Return the references of *memory*, each once: paths in prose, symbols in code spans; fenced code is ignored."""
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
    """Return the type of a relative path; None for other text, including URLs and patterns.

    A trailing slash identifies a path as reliably as a suffix does.
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
    """Return the identifier to search for if *text* names a function, class, constant or flag; otherwise None."""
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
"""Largest number of project files that are scanned."""
SIZE_LIMIT = 1_000_000
"""Largest file that is searched for symbols, in bytes; larger files are usually generated."""
TOTAL_LIMIT = 500_000_000
"""Largest sum of all files that are searched for symbols, in bytes."""
SKIPPED = frozenset(("node_modules", "__pycache__", "venv", "build", "dist", "target", "vendor", "site-packages"))
"""Directories with third-party or generated files; dot directories are skipped too."""
DOCUMENTS = frozenset((".md", ".mdx", ".rst", ".txt", ".adoc"))
"""Prose files are not searched, because they may mention deleted symbols."""
_WORDS = re.compile(r"--[A-Za-z0-9][\w-]*|[^\W\d]\w*")


@attrs.frozen(kw_only=True)
class MissingReferences:
    """Result of searching the project for mentioned files and symbols."""

    claims: tuple[ProjectReference, ...]
    """Mentioned files and symbols that do not exist in the project."""
    judged: int
    """Number of mentioned files and symbols that were searched for."""
    note: str | None
    """Reason why symbols were not searched for; None if they were."""


@attrs.define(eq=False)
class _ProjectFiles:
    """The files of a project, indexed by name."""

    root: Path
    files: list[str] = attrs.field(factory=list)
    """Paths of the project's files, relative, with `/`."""
    by_name: dict[str, list[str]] = attrs.field(factory=dict)
    """Maps the last component of a path to the paths of files and directories."""
    is_whole: bool = True

    def add(self, path: str) -> None:
        self.by_name.setdefault(path.rpartition("/")[2], []).append(path)


def find_missing(claims: Iterable[ProjectReference], project: Path, memories: Collection[Path]) -> MissingReferences:
    """Find the *claims* that are missing in *project*; files in the directories *memories* do not count.

    A path exists if the path of some file ends with it, or if a memory has that name. A symbol exists if it occurs as a
    word in a file that is not prose. The scan is bounded; what may lie beyond the bound is not judged. Blocks;
    unreadable files count as missing.
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
    """Return the *words* that no source contains; if the search was incomplete, no words and the reason."""
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
            # Reading a pipe would block, and a link may point anywhere.
            if path.is_symlink() or not path.is_file() or path.stat().st_size > SIZE_LIMIT:
                continue
            content = path.read_bytes()
        except OSError:
            continue
        if b"\0" not in content[:8_192]:
            yield content.decode("utf-8", "replace")
