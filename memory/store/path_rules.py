"""Rules for paths in a store: relative, Markdown, and the same on every file system."""

import re
import unicodedata
from collections.abc import Iterable

from coterie.memory.errors import MemoryRefused

INDEX = "MEMORY.md"
LOGS = "logs"
"""The directory of daily logs, which are no memories yet."""

LONGEST_NAME = 255
"""Bytes that file systems take."""
LONGEST_PATH = 1024
DEEPEST = 8
"""Directories and the file; nobody sorts memories deeper."""
SUFFIX = ".md"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,200}\.md")
_FORBIDDEN = frozenset('\\<>:"|?*')
"""A backslash is a separator elsewhere; the others cannot be in a name there, or not in a link."""


def check_path(path: str) -> tuple[str, ...]:
    """The names that *path* is made of, as they are given. Raises `MemoryRefused`."""
    if not path.strip():
        raise MemoryRefused(repr(path), "is no name; give the name of a file, such as `deploy_steps.md`")
    if path.startswith(("/", "~")):
        raise MemoryRefused(quote_path(path), "is not inside the memory directory; give a path relative to it")
    parts = tuple(path.split("/"))
    for part in parts:
        if reason := _objection(part):
            raise MemoryRefused(quote_path(path), reason)
    if len(parts) > DEEPEST:
        raise MemoryRefused(quote_path(path), f"has more than {DEEPEST} levels; put it nearer to the top")
    if len(path.encode()) > LONGEST_PATH:
        raise MemoryRefused(quote_path(path), f"is longer than {LONGEST_PATH} bytes; give a shorter one")
    if not parts[-1].endswith(SUFFIX) or parts[-1] == SUFFIX:
        raise MemoryRefused(path, f"is no Markdown file; its name should end with {SUFFIX}")
    _check_reserved_names(path, parts)
    return parts


def is_valid(path: str) -> bool:
    """Whether `check_path` takes it."""
    if _PLAIN.fullmatch(path) and path.lower() != INDEX.lower():
        return True  # as most are, of which there may be thousands
    try:
        check_path(path)
    except MemoryRefused:
        return False
    return True


def normalize_name(name: str) -> str:
    """*name* in the normal form in which new files are made."""
    return unicodedata.normalize("NFC", name)


def fold_name(name: str) -> str:
    """The same for names that some file systems hold for one."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())


def case_conflict(name: str, others: Iterable[str]) -> str | None:
    """The name among *others* that differs from *name* only in case or normal form."""
    others = list(others)
    # All at once first: this is asked for every new memory, and there may be thousands.
    if f"\0{fold_name(name)}\0" not in f"\0{fold_name(chr(0).join(others))}\0":
        return None
    return next((other for other in others if other != name and fold_name(other) == fold_name(name)), None)


def quote_path(path: str) -> str:
    """*path* as an error calls it: on one line, and not too long."""
    printable = path if path.isprintable() else repr(path)[1:-1]
    return printable if len(printable) <= 100 else f"{printable[:97]}..."


def _objection(name: str) -> str | None:
    if name == "..":
        return "leads out of the memory directory; give a path inside it"
    if not name or name.startswith("."):
        return "has a name in it that is empty or begins with a dot; such names are kept for the store itself"
    if not name.isprintable() or _FORBIDDEN & set(name):
        return "has a character in it that names should not have; use letters, digits, `_` and `-`"
    if name != name.strip() or name.endswith("."):
        return "has a name that begins or ends with a space, or ends with a dot"
    if len(name.encode()) > LONGEST_NAME:
        return f"has a name of more than {LONGEST_NAME} bytes; give a shorter one"
    return None


def _check_reserved_names(path: str, parts: tuple[str, ...]) -> None:
    """The index and the logs are known by their names, so nothing else may look like them."""
    for own in (INDEX, LOGS):
        if parts[0] != own and fold_name(parts[0]) == fold_name(own):
            raise MemoryRefused(path, f"differs only in case from {own}; write {own}, or give another name")
