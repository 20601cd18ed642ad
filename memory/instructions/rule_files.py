"""Names of instruction files, and rules with the files to which they apply."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from coterie.memory.front_matter.front_matter import parse_front_matter
from coterie.memory.front_matter.yaml_fields import FieldWarning, Value

OVERRIDES = {"AGENTS.md": "AGENTS.override.md"}
"""Maps a name to the file that replaces it if it exists."""


def resolve_file_name(path: Path) -> Path:
    """Return the existing file for *path*: its override, itself, or a file that differs only in case.

    Returns *path* itself if none exists. Blocks; never raises.
    """
    override = path.with_name(OVERRIDES.get(path.name, path.name))
    for candidate in (override, path):
        if os.path.lexists(candidate):
            return candidate
    try:
        # As strings, because names may not be valid UTF-8.
        spelt = sorted(name for name in os.listdir(path.parent) if name.casefold() == path.name.casefold())  # noqa: PTH208
    except OSError:
        return path
    return path.with_name(spelt[0]) if spelt else path


def list_rule_files(directory: Path, on_failure: Callable[[Path, OSError], None]) -> Iterator[Path]:
    """Yield the `.md` files in and below *directory*, sorted by name; links to directories are not followed.

    *on_failure* is called for a directory that exists but cannot be listed.
    """

    def on_error(exc: OSError) -> None:
        if not isinstance(exc, FileNotFoundError | NotADirectoryError):
            on_failure(Path(exc.filename), exc)

    for name, directories, files in os.walk(directory, onerror=on_error):
        directories.sort()
        yield from (Path(name, file) for file in sorted(files) if file.endswith(".md"))


_COMMA = re.compile(r",(?![^{]*\})")
"""A comma between two patterns, not one inside `*.{ts,tsx}`."""


@attrs.frozen(kw_only=True)
class RuleText:
    """A rule: its text and the files to which it applies."""

    text: str
    """Text of the rule without front matter."""
    paths: tuple[str, ...] = ()
    """Patterns of the files to which the rule applies; empty if it always applies."""
    notes: tuple[FieldWarning, ...] = ()


def parse_rule(text: str) -> RuleText:
    """Parse a rule file; accepts any text and never raises."""
    front = parse_front_matter(text)
    if front.line is None:
        return RuleText(text=text)
    paths = (path.strip() for path in _texts(front.fields.get("paths", [])))
    return RuleText(text=front.body, paths=tuple(filter(None, paths)), notes=tuple(front.notes))


def _texts(value: Value) -> Iterator[str]:
    if isinstance(value, str):
        yield from _COMMA.split(value)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
