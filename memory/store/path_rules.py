"""Rules for paths in a store: relative, Markdown, and valid on every file system."""

import re
import unicodedata
from collections.abc import Iterable

from coterie.memory.errors import MemoryRefused

INDEX = "MEMORY.md"
LOGS = "logs"
"""Directory of the daily logs, which do not count as memories."""

LONGEST_NAME = 255
"""Longest file name that common file systems accept, in bytes."""
LONGEST_PATH = 1024
DEEPEST = 8
"""Largest number of components of a memory's path."""
SUFFIX = ".md"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,200}\.md")
_FORBIDDEN = frozenset('\\<>:"|?*')
"""A backslash is a separator on other systems; the other characters are invalid there in names, or in links."""


def check_path(path: str) -> tuple[str, ...]:
    """Return the components of *path*. Raises `MemoryRefused` if *path* is not allowed."""
    if not path.strip():
        raise MemoryRefused(repr(path), "is not a name; give the name of a file, such as `deploy_steps.md`")
    if path.startswith(("/", "~")):
        raise MemoryRefused(quote_path(path), "is not inside the memory directory; give a path relative to it")
    parts = tuple(path.split("/"))
    for part in parts:
        if reason := _objection(part):
            raise MemoryRefused(quote_path(path), reason)
    if len(parts) > DEEPEST:
        raise MemoryRefused(quote_path(path), f"has more than {DEEPEST} levels; use fewer directories")
    if len(path.encode()) > LONGEST_PATH:
        raise MemoryRefused(quote_path(path), f"is longer than {LONGEST_PATH} bytes; give a shorter one")
    if not parts[-1].endswith(SUFFIX) or parts[-1] == SUFFIX:
        raise MemoryRefused(path, f"is not a Markdown file; its name should end with {SUFFIX}")
    for own in (INDEX, LOGS):
        if parts[0] != own and fold_name(parts[0]) == fold_name(own):
            raise MemoryRefused(path, f"differs only in case from {own}; write {own}, or give another name")
    return parts


def is_valid(path: str) -> bool:
    """True if `check_path` accepts *path*."""
    if _PLAIN.fullmatch(path) and path.lower() != INDEX.lower():
        return True  # shortcut for ordinary names, because a store may hold thousands
    try:
        check_path(path)
    except MemoryRefused:
        return False
    return True


def normalize_name(name: str) -> str:
    """Return *name* in the normal form used for new files."""
    return unicodedata.normalize("NFC", name)


def fold_name(name: str) -> str:
    """Return a key that is equal for names that some file systems do not distinguish."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


def case_conflict(name: str, others: Iterable[str]) -> str | None:
    """Return the name among *others* that differs from *name* only in case or normal form."""
    others = list(others)
    # One test of all names first, because this runs for every new memory.
    if f"\0{fold_name(name)}\0" not in f"\0{fold_name(chr(0).join(others))}\0":
        return None
    return next((other for other in others if other != name and fold_name(other) == fold_name(name)), None)


def quote_path(path: str) -> str:
    """Return *path* for an error message: on one line, and not too long."""
    printable = path if path.isprintable() else repr(path)[1:-1]
    return printable if len(printable) <= 100 else f"{printable[:97]}..."


def _objection(name: str) -> str | None:
    if name == "..":
        return "leads out of the memory directory; give a path inside it"
    if not name or name.startswith("."):
        return "has a component that is empty or begins with a dot; such names are reserved for the store"
    if not name.isprintable() or _FORBIDDEN & set(name):
        return "has a character that is not allowed in names; use letters, digits, `_` and `-`"
    if name != name.strip() or name.endswith("."):
        return "has a component that begins or ends with a space, or ends with a dot"
    if len(name.encode()) > LONGEST_NAME:
        return f"has a component of more than {LONGEST_NAME} bytes; give a shorter one"
    return None
