"""Which file the name of an instruction file means: people spell it in other capitals, and put another before it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

OVERRIDES = {"AGENTS.md": "AGENTS.override.md"}
"""Name -> the file that stands for it, where there is one."""


def named_file(path: Path) -> Path:
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


def rule_files(directory: Path, tell: Callable[[Path, OSError], None]) -> Iterator[Path]:
    """The `.md` files at and below *directory*, in the order of their names; links to directories are not entered.

    *tell* hears of a directory that cannot be listed, unless it is not there.
    """

    def on_error(exc: OSError) -> None:
        if not isinstance(exc, FileNotFoundError | NotADirectoryError):
            tell(Path(exc.filename), exc)

    for name, directories, files in os.walk(directory, onerror=on_error):
        directories.sort()
        yield from (Path(name, file) for file in sorted(files) if file.endswith(".md"))
