"""Loader of instruction files, which people write for all agents in a directory; the order is fixed.

A problem in a file causes a warning, and the rest of the file is loaded.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import quoteattr

import attrs

from coterie.memory.front_matter.front_matter import parse_front_matter
from coterie.memory.front_matter.yaml_fields import FieldWarning, Value
from coterie.memory.instructions.includes import IncludeReference, find_includes
from coterie.paths import checkout_root, home_directory, project_root
from coterie.trusted_files import TrustedFiles

MANAGED = Path("/etc/coterie")
NAMES = ("CLAUDE.md", "AGENTS.md", "rules/")
"""Names in the managed directory and in the user's directory; a name with a slash is a directory of rules."""
PROJECT_NAMES = ("CLAUDE.md", "AGENTS.md", ".claude/CLAUDE.md", ".claude/rules/")
PRIVATE_NAMES = ("CLAUDE.local.md", "AGENTS.local.md")
HOPS = 4
"""Largest depth of nested includes."""
LONG = 40_000
"""In characters; a longer file is loaded with a warning, because every turn pays for it."""
SIZE_LIMIT = 1_000_000
"""In bytes; larger files are not loaded, because no context window holds them."""
FILE_LIMIT = 500

InstructionScope = Literal["managed", "user", "project", "private"]
_OWNERS: dict[InstructionScope, str] = {
    "managed": "the administrator of this machine",
    "user": "the user, for all projects",
    "project": "the project",
    "private": "the user, for this project",
}


@attrs.frozen(kw_only=True)
class InstructionPaths:
    """Directories that are searched for instruction files."""

    home: Path
    """Coterie's home directory of the user."""
    project: Path
    """Top directory of the checkout; for a worktree its own top directory, because git tracks the files there."""
    working: Path
    managed: Path = MANAGED


@attrs.frozen(kw_only=True)
class InstructionFile:
    """A loaded instruction file."""

    path: Path
    scope: InstructionScope
    text: str
    paths: tuple[str, ...] = ()
    """Patterns of the files to which a rule applies; empty if it always applies."""
    included_by: Path | None = None

    def to_text(self) -> str:
        """Return the text with its path and owner."""
        purpose = f" for={quoteattr(', '.join(self.paths))}" if self.paths else ""
        opening = f"<instructions file={quoteattr(_readable(self.path))} of={quoteattr(_OWNERS[self.scope])}{purpose}>"
        return f"{opening}\n{self.text.strip()}\n</instructions>"


@attrs.frozen(kw_only=True)
class InstructionWarning:
    """Warning about a file that was loaded in part, or not at all."""

    path: Path
    line: int | None
    """Line of the include; None if the warning concerns the file itself."""
    reason: str

    @property
    def source(self) -> str:
        """The file, with the line if there is one."""
        return _readable(self.path) + ("" if self.line is None else f":{self.line}")

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


@attrs.frozen(kw_only=True)
class Instructions:
    """All loaded instruction files in order; later files take precedence."""

    files: tuple[InstructionFile, ...]
    notes: tuple[InstructionWarning, ...]
    unapproved: tuple[Path, ...]
    """Resolved paths of included files outside the project that the user has not approved."""

    def to_text(self) -> str:
        """Return the text of every file with its path and owner; empty without files. Equal files give equal text."""
        return "\n\n".join(file.to_text() for file in self.files)


def read_instructions(project: Path) -> Instructions:
    """Load the instruction files that apply in *project*. Blocks. Raises `ConfigInvalid`."""
    # The files come from this checkout; approvals are shared by all worktrees of the project.
    places = InstructionPaths(home=home_directory(), project=checkout_root(project), working=project)
    return load_instructions(places, TrustedFiles.of(project_root(project)).__contains__)


def load_instructions(places: InstructionPaths, approved: Callable[[Path], bool]) -> Instructions:
    """Load the instruction files of *places*: managed, user, then each directory from the project down.

    An included file precedes the file that includes it. A file that is reached twice keeps its first position. Includes
    within one of the places are free; for other files, and for links that leave the project, *approved* is called with
    the resolved path. Blocks. Problems in files never raise.
    """
    roots = (places.managed, places.home, places.project, places.working)
    reading = _Loader(tuple(map(_real, roots)), approved)
    reading.load_named(places.managed, NAMES, "managed")
    reading.load_named(places.home, NAMES, "user")
    for directory in _directories_between(_real(places.project), _real(places.working)):
        reading.load_named(directory, PROJECT_NAMES, "project")
        reading.load_named(directory, PRIVATE_NAMES, "private")
    return Instructions(
        files=tuple(reading.files), notes=tuple(reading.notes), unapproved=tuple(dict.fromkeys(reading.unapproved))
    )


@attrs.frozen(kw_only=True)
class _FoundFile:
    """An instruction file that was found and will be loaded."""

    path: Path
    """Path of the file as shown in warnings."""
    real: Path
    """Path of the file with links resolved; identifies the file."""
    scope: InstructionScope
    is_rule: bool = False
    included_by: Path | None = None
    hops: int = 0


@attrs.define(eq=False)
class _Loader:
    """One pass over all instruction files."""

    roots: tuple[Path, ...]
    approved: Callable[[Path], bool]
    files: list[InstructionFile] = attrs.field(factory=list)
    notes: list[InstructionWarning] = attrs.field(factory=list)
    unapproved: list[Path] = attrs.field(factory=list)
    _seen: set[Path] = attrs.field(factory=set)

    def load_named(self, directory: Path, names: Iterable[str], scope: InstructionScope) -> None:
        """Load the files *names* of *directory* that exist, each after its includes."""
        for name in names:
            if not name.endswith("/"):
                self._load_path(resolve_file_name(directory / name), scope)
                continue
            for path in list_rule_files(
                directory / name, lambda path, exc: self._warn(path, f"cannot be listed: {exc.strerror}")
            ):
                self._load_path(path, scope, is_rule=True)

    def _load_path(self, path: Path, scope: InstructionScope, *, is_rule: bool = False) -> None:
        try:
            real = Path(os.path.realpath(path, strict=True))
        except (FileNotFoundError, NotADirectoryError):
            if path.is_symlink():
                self._warn(path, "is a link to nothing")
            return
        except OSError as exc:
            self._warn(path, f"cannot be read: {exc.strerror}")
            return
        # Links are trusted in the user's and the managed directory, but not in a project.
        is_free = scope in ("managed", "user") or self._is_free(path, real)
        if real not in self._seen and (is_free or self._is_approved(real, path, "leads")):
            self._load(_FoundFile(path=path, real=real, scope=scope, is_rule=is_rule))

    def _load(self, found: _FoundFile) -> None:
        self._seen.add(found.real)
        if len(self.files) >= FILE_LIMIT:
            self._warn(found.path, f"is left out: {FILE_LIMIT} files are loaded already")
            return
        text = ""
        try:
            text = _read_text(found.real)
        except OSError as exc:
            self._warn(found.path, f"cannot be read: {exc.strerror}")
        except ValueError as exc:
            self._warn(found.path, f"is left out: it is {exc}")
        for include in find_includes(text):
            self._load_include(include, found)
        if len(text) > LONG:
            self._warn(
                found.path, f"has {len(text):,} characters, and every turn pays for them; up to {LONG:,} is fine"
            )
        rule = parse_rule(text) if found.is_rule else RuleText(text=text)
        for note in rule.notes:
            self._warn(found.path, note.reason, note.line)
        if rule.text.strip():
            self.files.append(
                InstructionFile(
                    path=found.path,
                    scope=found.scope,
                    text=rule.text,
                    paths=rule.paths,
                    included_by=found.included_by,
                )
            )

    def _load_include(self, include: IncludeReference, by: _FoundFile) -> None:
        target = include.target(by.real.parent)
        if target is None or target in self._seen:
            return
        if by.hops == HOPS:
            self._warn(by.path, f"@{include.path} is left out: it is more than {HOPS} includes deep", include.line)
        elif self._is_free(by.real, target) or self._is_approved(
            target, by.path, f"@{include.path} leads", include.line
        ):
            self._load(_FoundFile(path=target, real=target, scope=by.scope, included_by=by.path, hops=by.hops + 1))

    def _is_free(self, file: Path, target: Path) -> bool:
        """True if both files are in one of the places, so that a repository cannot include other files of the user."""
        return any(file.is_relative_to(root) and target.is_relative_to(root) for root in self.roots)

    def _is_approved(self, target: Path, path: Path, leads: str, line: int | None = None) -> bool:
        if self.approved(target):
            return True
        self.unapproved.append(target)
        self._warn(
            path, f"{leads} outside the project, to {_readable(target)}; left out until you approve that file", line
        )
        return False

    def _warn(self, path: Path, reason: str, line: int | None = None) -> None:
        self.notes.append(InstructionWarning(path=path, line=line, reason=reason))


def _read_text(path: Path) -> str:
    """Return the text of a file. Raises `OSError`, and `ValueError` if the file is not text."""
    # Checked first, because opening a pipe would block.
    if not path.is_file():
        raise ValueError("not a regular file")
    with path.open("rb") as stream:
        content = stream.read(SIZE_LIMIT + 1)
    if len(content) > SIZE_LIMIT:
        raise ValueError(f"larger than {SIZE_LIMIT:,} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ValueError("not text in UTF-8") from exc
    if "\0" in text:
        raise ValueError("not text: it holds a NUL")
    return text


def _directories_between(project: Path, working: Path) -> list[Path]:
    """Return the directories from *project* down to *working*; both if *working* is not inside *project*."""
    if not working.is_relative_to(project):
        return [project, working]
    steps = working.relative_to(project).parts
    return [project.joinpath(*steps[:count]) for count in range(len(steps) + 1)]


def _real(path: Path) -> Path:
    # `Path.resolve` raises on a loop of links, but `realpath` does not.
    return Path(os.path.realpath(path))


def _readable(path: Path) -> str:
    """Return a path as text that can be encoded, for any bytes in it."""
    return os.fsencode(path).decode("utf-8", "replace")


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
