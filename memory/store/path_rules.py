"""Rules for the paths of files in a memory store: relative, Markdown, and valid on every file system."""

import re
import unicodedata
from collections.abc import Iterable

from coterie.memory.errors import MemoryRefused

INDEX = "MEMORY.md"
LOGS = "logs"
"""Name of the directory of the daily logs in a store; these files do not count as memories."""

LONGEST_NAME = 255
"""Maximum length of a file name, in bytes, that common file systems accept."""
LONGEST_PATH = 1024
DEEPEST = 8
"""Maximum number of components of a memory's path: its directories and its file name."""
SUFFIX = ".md"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,200}\.md")
_FORBIDDEN = frozenset('\\<>:"|?*')
"""Characters that are not allowed in names, because other systems or Markdown links cannot contain them."""


def check_path(path: str) -> tuple[str, ...]:
    """Check *path*, relative to a memory directory, and return its components. Raises `MemoryRefused` if invalid."""
    if not path.strip():
        raise MemoryRefused(repr(path), "is not a name; give the name of a memory, such as `deploy_steps.md`")
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
        raise MemoryRefused(path, f"is not a Markdown file; give a name that ends with {SUFFIX}")
    for own in (INDEX, LOGS):
        if parts[0] != own and fold_name(parts[0]) == fold_name(own):
            raise MemoryRefused(path, f"differs only in case from {own}; write {own}, or give another name")
    return parts


def is_valid(path: str) -> bool:
    """True if *path* is a valid path for a file in a store, that is, if `check_path` accepts it."""
    if _PLAIN.fullmatch(path) and path.lower() != INDEX.lower():
        return True  # shortcut for ordinary names, because a store may hold thousands
    try:
        check_path(path)
    except MemoryRefused:
        return False
    return True


def normalize_name(name: str) -> str:
    """Return the file *name* in the Unicode normal form that is used for new files (NFC)."""
    return unicodedata.normalize("NFC", name)


def fold_name(name: str) -> str:
    """Return a key of *name* that is equal for names that differ only in case or Unicode normal form."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


def case_conflict(name: str, others: Iterable[str]) -> str | None:
    """Return the name in *others* that differs from *name* only in case or Unicode normal form; else return None."""
    others = list(others)
    # One test of all names first, because this runs for every new memory.
    if f"\0{fold_name(name)}\0" not in f"\0{fold_name(chr(0).join(others))}\0":
        return None
    return next((other for other in others if other != name and fold_name(other) == fold_name(name)), None)


def quote_path(path: str) -> str:
    """Return *path* in a form for error messages: on one line, at most 100 characters."""
    printable = path if path.isprintable() else repr(path)[1:-1]
    return printable if len(printable) <= 100 else f"{printable[:97]}..."


def _objection(name: str) -> str | None:
    if name == "..":
        return "leads out of the memory directory; give a path inside it"
    if not name or name.startswith("."):
        return "has a component that is empty or begins with a dot; give another name, these are reserved"
    if not name.isprintable() or _FORBIDDEN & set(name):
        return "has a character that is not allowed in names; use letters, digits, `_` and `-`"
    if name != name.strip() or name.endswith("."):
        return "has a component that begins or ends with a space, or ends with a dot; remove it"
    if len(name.encode()) > LONGEST_NAME:
        return f"has a component of more than {LONGEST_NAME} bytes; give a shorter one"
    return None
