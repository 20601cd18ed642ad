"""Patterns of paths in permission rules, and protected paths, which no rule can open for editing."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import attrs

from coterie.glob_pattern import LEFT_OUT, GlobPattern
from coterie.paths import WORKTREES, home_directory, project_directory

SEARCH_LIMIT = 10_000
"""Maximum number of files and directories that are compared with a pattern; a larger tree counts as a match."""

_WILDCARDS = frozenset("*?[{")

PROTECTED_DIRECTORIES = frozenset(
    {
        *(".git", ".husky", ".coterie", ".claude", ".vscode", ".idea", ".devcontainer"),
        *(".ssh", ".gnupg", ".aws", ".kube", ".docker", ".azure"),
    }
)
"""Names of directories that no rule lets an agent edit: they contain hooks, settings, memory, editor tasks or keys."""
PROTECTED_FILES = frozenset(
    {
        *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".inputrc"),
        *(".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", "config.fish"),
        *(".kshrc", ".cshrc", ".tcshrc", ".login"),
        *(".xprofile", ".xinitrc", ".xsession", ".xsessionrc", ".pam_environment", ".envrc", ".tmux.conf", ".vimrc"),
        *(".gitconfig", ".gitmodules", ".mcp.json", ".claude.json", ".ripgreprc"),
        *(".netrc", ".pgpass", ".npmrc", ".pypirc", ".curlrc", ".wgetrc"),
    }
)
"""Names of files that no rule lets an agent edit: start-up files, git configuration, tool servers and passwords."""


@attrs.frozen(kw_only=True)
class PathPattern:
    """Pattern of paths in a permission rule, as in `.gitignore`; compared with paths after links are followed."""

    anchor: Path | None
    """Directory that the pattern is relative to; None for the root of the agent's workspace."""
    fixed: tuple[str, ...]
    """Parts of the pattern, which slashes separate, before the first part with a wildcard."""
    wildcard: GlobPattern | None
    """Pattern for the path below the fixed parts; None to match everything below them."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a path with wildcards; a text without a slash is a name that may occur anywhere below the root.

        Raises `ValueError` with the problem and the correction.
        """
        anchor, pattern = Path("/") if text.startswith("/") else None, text
        if text == "~" or text.startswith("~/"):
            anchor, pattern = Path.home(), text[1:]
        parts = [part for part in pattern.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise ValueError(f"{text!r} leaves its directory; write an absolute path, as in Read(/usr/include/**)")
        if anchor is None and "/" not in text.rstrip("/"):
            parts.insert(0, "**")
        while parts and parts[-1] == "**":
            parts.pop()
        count = next((index for index, part in enumerate(parts) if not _WILDCARDS.isdisjoint(part)), len(parts))
        wildcard = GlobPattern.parse("/".join(parts[count:])) if parts[count:] else None
        return cls(anchor=anchor, fixed=tuple(parts[:count]), wildcard=wildcard)

    @classmethod
    def exactly(cls, path: Path) -> Self:
        """Return the pattern that matches *path*, which is absolute, and everything below it."""
        return cls(anchor=Path("/"), fixed=path.parts[1:], wildcard=None)

    def is_exactly(self, path: Path, root: Path) -> bool:
        """True if the pattern has no wildcard and names *path*; relative patterns begin at *root*."""
        return self.wildcard is None and self._base(root) == path

    def covers(self, path: Path, root: Path) -> bool:
        """True if the pattern certainly matches *path* and everything below it, as an allow rule must.

        Links in the pattern itself are not followed, because a changed link would move the permission to other files.
        """
        return self._describes(path, self._base(root))

    def may_be_in(self, path: Path, root: Path) -> bool:
        """True if the pattern may match *path*, or something below it, with links followed in both."""
        bases = {self._base(root)}
        with contextlib.suppress(OSError, RuntimeError):  # A cycle of links leads to no file.
            bases.add(self._base(root).resolve())
        return any(self._describes(path, base) or (path.is_dir() and self._is_below(path, base)) for base in bases)

    def _base(self, root: Path) -> Path:
        return (root.resolve() if self.anchor is None else self.anchor).joinpath(*self.fixed)

    def _describes(self, path: Path, base: Path) -> bool:
        if not path.is_relative_to(base):
            return False
        parts = path.relative_to(base).parts
        wildcard = self.wildcard
        return wildcard is None or any(wildcard.matches("/".join(parts[: n + 1])) for n in range(len(parts)))

    def _is_below(self, directory: Path, base: Path) -> bool:
        """True if a path below *directory* may match; *base* is the absolute path of the fixed parts of the pattern."""
        if self.wildcard is None:
            return base.is_relative_to(directory) and base.exists()
        if not base.is_relative_to(directory) and not directory.is_relative_to(base):
            return False
        top = base if base.is_relative_to(directory) else directory
        return any(count == SEARCH_LIMIT or self._describes(path, base) for count, path in enumerate(_walk(top)))


def _walk(top: Path) -> Iterator[Path]:
    """Yield all files and directories below *top*, except in directories such as `.git` that searches ignore."""
    for parent, directories, files in os.walk(top):
        directories[:] = [name for name in directories if name not in LEFT_OUT]
        for name in (*directories, *files):
            yield Path(parent, name)


def is_inside(path: Path, directory: Path) -> bool:
    """True if *path*, which is resolved, is *directory* or below it; links in *directory* are followed."""
    return path.is_relative_to(directory.resolve())


def is_protected(path: Path, root: Path) -> bool:
    """True if no rule may let an agent edit *path* (links resolved), because it affects later runs; ignores case.

    Protected names above *root* have no effect, because the user has chosen *root* as the place of work.
    """
    root = root.resolve()
    below = path.relative_to(root) if path.is_relative_to(root) else path
    parts = [part.casefold() for part in below.parts]
    if not PROTECTED_DIRECTORIES.isdisjoint(parts) or path.name.casefold() in PROTECTED_FILES:
        return True
    # A worktree created for an agent is its place of work, although it is inside of the project directory.
    if path.is_relative_to(root) and is_inside(root, project_directory(root) / WORKTREES):
        return False
    # Some file systems ignore case, so that .GIT is .git.
    folded = Path(str(path).casefold())
    places = (home_directory(), project_directory(root))
    return any(folded.is_relative_to(str(place.resolve()).casefold()) for place in places)
