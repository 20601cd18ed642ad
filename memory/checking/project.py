"""The project that memories speak of: which of the files and symbols they name are still there."""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import attrs

from coterie.memory.checking.claims import Claim

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
class Absent:
    """What was looked for."""

    claims: tuple[Claim, ...]
    """Those whose file or symbol is nowhere."""
    judged: int
    """How many were looked for; others cannot be told."""
    note: str | None
    """Why symbols were not looked for everywhere."""


@attrs.define(eq=False)
class _Tree:
    """The files of a project, by their names."""

    root: Path
    files: list[str] = attrs.field(factory=list)
    """Relative, with slashes."""
    by_name: dict[str, list[str]] = attrs.field(factory=dict)
    """The last part of a path -> files and directories."""
    is_whole: bool = True

    def add(self, path: str) -> None:
        self.by_name.setdefault(path.rpartition("/")[2], []).append(path)


def absent_claims(claims: Iterable[Claim], project: Path, memories: Collection[Path]) -> Absent:
    """Which of the *claims* name what is not in *project*; what is in the directories *memories* does not count.

    A path counts as there if some file's path ends with it, or if a memory has that name; a symbol, if it stands as a
    word in a file that is no prose. One pass over the tree, bounded; what could be beyond the bound is not judged.
    Blocks on the disk; what cannot be read counts as absent.
    """
    tree = _walk(project, [Path(os.path.realpath(path)) for path in memories])
    named = list(claims)
    paths = [claim for claim in named if _is_path_claim(tree, claim)]
    absent = [claim for claim in paths if not _is_there(tree, claim.name, memories)] if tree.is_whole else []
    symbols = [claim for claim in named if claim.kind == "symbol"]
    missing, note = _missing_words(tree, {claim.name for claim in symbols})
    gone = {*absent, *(claim for claim in symbols if claim.name in missing)}
    judged = (len(paths) if tree.is_whole else 0) + (0 if note else len(symbols))
    return Absent(claims=tuple(claim for claim in named if claim in gone), judged=judged, note=note)


def _walk(project: Path, left_out: Collection[Path]) -> _Tree:
    tree = _Tree(Path(os.path.realpath(project)))
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


def _is_path_claim(tree: _Tree, claim: Claim) -> bool:
    """Without a suffix a name with slashes may be a branch or a type of media: it counts if it begins as the tree."""
    if claim.kind == "directory":
        return (tree.root / claim.name.partition("/")[0]).is_dir()
    return claim.kind == "file"


def _is_there(tree: _Tree, name: str, memories: Collection[Path]) -> bool:
    # Asked of the disk first: the walk passes over what git ignores, and a memory may name that.
    name = name.rstrip("/")
    if any(os.path.lexists(place / name) for place in (tree.root, *memories)):
        return True
    ending = f"/{name}"
    return any(f"/{path}".endswith(ending) for path in tree.by_name.get(name.rpartition("/")[2], ()))


def _missing_words(tree: _Tree, words: set[str]) -> tuple[set[str], str | None]:
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


def _sources(tree: _Tree) -> Iterator[str]:
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
