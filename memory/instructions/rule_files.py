"""Names of instruction files, and rules with the files to which they apply."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from coterie.memory.front_matter.front_matter import parse_front_matter
from coterie.memory.front_matter.yaml_fields import FieldWarning, Value

OVERRIDES = {"AGENTS.md": "AGENTS.override.md"}
"""Name -> the file that stands for it, where there is one."""


def resolve_file_name(path: Path) -> Path:
    """The file that *path* names: what stands for it, itself, or one that is spelt with other capitals.

    *path* itself if there is none of these. Blocks on the disk; raises nothing for it.
    """
    override = path.with_name(OVERRIDES.get(path.name, path.name))
    for candidate in (override, path):
        if os.path.lexists(candidate):
            return candidate
    try:
        # By text, as an entry may have a name that is none in UTF-8.
        spelt = sorted(name for name in os.listdir(path.parent) if name.casefold() == path.name.casefold())  # noqa: PTH208
    except OSError:
        return path
    return path.with_name(spelt[0]) if spelt else path


def list_rule_files(directory: Path, tell: Callable[[Path, OSError], None]) -> Iterator[Path]:
    """The `.md` files at and below *directory*, in the order of their names; links to directories are not entered.

    *tell* hears of a directory that cannot be listed, unless it is not there.
    """

    def on_error(exc: OSError) -> None:
        if not isinstance(exc, FileNotFoundError | NotADirectoryError):
            tell(Path(exc.filename), exc)

    for name, directories, files in os.walk(directory, onerror=on_error):
        directories.sort()
        yield from (Path(name, file) for file in sorted(files) if file.endswith(".md"))


_COMMA = re.compile(r",(?![^{]*\})")
"""Between two patterns; a comma in `*.{ts,tsx}` is none."""


@attrs.frozen(kw_only=True)
class RuleText:
    """A rule in two parts."""

    text: str
    """Without its front matter."""
    paths: tuple[str, ...] = ()
    """Patterns of the files that it is for; none for a rule that always holds."""
    notes: tuple[FieldWarning, ...] = ()


def parse_rule(text: str) -> RuleText:
    """Read *text*, whatever it is; never raises."""
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
