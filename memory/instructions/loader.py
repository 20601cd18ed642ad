"""Instruction files: what people wrote down for every agent that works in a place, gathered in a fixed order.

They are other people's files. Whatever is odd about one is noted, and the rest is loaded.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import quoteattr

import attrs

from coterie.memory.instructions.includes import IncludeReference, find_includes
from coterie.memory.instructions.rule_files import RuleText, list_rule_files, parse_rule, resolve_file_name
from coterie.paths import checkout_root, home_directory, project_root
from coterie.trusted_files import TrustedFiles

MANAGED = Path("/etc/coterie")
NAMES = ("CLAUDE.md", "AGENTS.md", "rules/")
"""In the managed directory and in the user's; a directory holds rules."""
PROJECT_NAMES = ("CLAUDE.md", "AGENTS.md", ".claude/CLAUDE.md", ".claude/rules/")
PRIVATE_NAMES = ("CLAUDE.local.md", "AGENTS.local.md")
HOPS = 4
"""How far includes of includes are followed."""
LONG = 40_000
"""Characters from which on a file is loaded with a warning: every turn pays for it."""
SIZE_LIMIT = 1_000_000
"""Bytes beyond which a file is not read: no window holds it."""
FILE_LIMIT = 500

InstructionScope = Literal["managed", "user", "project", "private"]
_OWNERS: dict[InstructionScope, str] = {
    "managed": "whoever manages this machine",
    "user": "the user, for all projects",
    "project": "the project",
    "private": "the user, for this project",
}


@attrs.frozen(kw_only=True)
class InstructionPaths:
    """Where instruction files are looked for."""

    home: Path
    """Coterie's directory of the user."""
    project: Path
    """The top of the tree the agent works in; of a worktree its own top, because git tracks the files there."""
    working: Path
    managed: Path = MANAGED


@attrs.frozen(kw_only=True)
class InstructionFile:
    """A file that was loaded."""

    path: Path
    scope: InstructionScope
    text: str
    paths: tuple[str, ...] = ()
    """Patterns of the files that it is for; none for one that always holds."""
    included_by: Path | None = None


@attrs.frozen(kw_only=True)
class InstructionWarning:
    """What a person should know about a file that was loaded in part, or not at all."""

    path: Path
    line: int | None
    """Where the file names another one; None when the note is about the file itself."""
    reason: str

    @property
    def source(self) -> str:
        """The file, and the line if it is about one."""
        return _readable(self.path) + ("" if self.line is None else f":{self.line}")

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


@attrs.frozen(kw_only=True)
class Instructions:
    """All files in order; the later one weighs more."""

    files: tuple[InstructionFile, ...]
    notes: tuple[InstructionWarning, ...]
    unapproved: tuple[Path, ...]
    """Files outside that were named and not loaded, because nobody approved of them; links followed."""

    def to_text(self) -> str:
        """Every file's text under its path and whose it is; empty without files. Equal files give equal text."""
        return "\n\n".join(_section(file) for file in self.files)


def read_instructions(project: Path) -> Instructions:
    """The instruction files that hold in *project*. Blocks on the disk. Raises `ConfigInvalid`."""
    # The files are those of this checkout; approvals hold for all worktrees of the project.
    places = InstructionPaths(home=home_directory(), project=checkout_root(project), working=project)
    return load_instructions(places, TrustedFiles.of(project_root(project)).__contains__)


def load_instructions(places: InstructionPaths, approved: Callable[[Path], bool]) -> Instructions:
    """Read the instruction files of *places*: managed, the user's, then each directory from the project down.

    An included file stands right before the one that names it. A file that is reached twice, by a link or an include,
    stands where it was reached first. A file includes freely what lies in the same place; for anything else, and for a
    link that leads out of the project, *approved* is asked with the resolved path. Blocks on the disk; raises nothing
    for what it finds there.
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
    """A file that is to be read."""

    path: Path
    """As people know it."""
    real: Path
    """With all links followed; names the file."""
    scope: InstructionScope
    is_rule: bool = False
    included_by: Path | None = None
    hops: int = 0


@attrs.define(eq=False)
class _Loader:
    """One pass over all files."""

    roots: tuple[Path, ...]
    approved: Callable[[Path], bool]
    files: list[InstructionFile] = attrs.field(factory=list)
    notes: list[InstructionWarning] = attrs.field(factory=list)
    unapproved: list[Path] = attrs.field(factory=list)
    _seen: set[Path] = attrs.field(factory=set)

    def load_named(self, directory: Path, names: Iterable[str], scope: InstructionScope) -> None:
        """Load those files that are there, and before each what it includes."""
        for name in names:
            if not name.endswith("/"):
                self._load_path(resolve_file_name(directory / name), scope)
                continue
            for path in list_rule_files(directory / name, self._warn_unlisted):
                self._load_path(path, scope, is_rule=True)

    def _warn_unlisted(self, directory: Path, exc: OSError) -> None:
        self._warn(directory, f"cannot be listed: {exc.strerror}")

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
        # The user's and the managed directory are their owners' to arrange; a project's links are anyone's.
        is_free = scope in ("managed", "user") or self._is_free(path, real)
        if real not in self._seen and (is_free or self._is_approved(real, path, "leads")):
            self._load(_FoundFile(path=path, real=real, scope=scope, is_rule=is_rule))

    def _load(self, found: _FoundFile) -> None:
        self._seen.add(found.real)
        if len(self.files) >= FILE_LIMIT:
            self._warn(found.path, f"is left out: {FILE_LIMIT} files are loaded already")
            return
        text = self._read(found)
        for mention in find_includes(text):
            self._load_include(mention, found)
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

    def _read(self, found: _FoundFile) -> str:
        """The file's text; empty, with a note, when it cannot be used."""
        try:
            return _read_text(found.real)
        except OSError as exc:
            self._warn(found.path, f"cannot be read: {exc.strerror}")
        except ValueError as exc:
            self._warn(found.path, f"is left out: it is {exc}")
        return ""

    def _load_include(self, mention: IncludeReference, by: _FoundFile) -> None:
        target = mention.target(by.real.parent)
        if target is None or target in self._seen:
            return
        if by.hops == HOPS:
            self._warn(by.path, f"@{mention.path} is left out: it is more than {HOPS} includes deep", mention.line)
        elif self._is_free(by.real, target) or self._is_approved(
            target, by.path, f"@{mention.path} leads", mention.line
        ):
            self._load(_FoundFile(path=target, real=target, scope=by.scope, included_by=by.path, hops=by.hops + 1))

    def _is_free(self, file: Path, target: Path) -> bool:
        """Whether both lie in one place. A repository may thus not have the user's other files read to the model."""
        return any(file.is_relative_to(root) and target.is_relative_to(root) for root in self.roots)

    def _is_approved(self, target: Path, path: Path, leads: str, line: int | None = None) -> bool:
        if self.approved(target):
            return True
        self.unapproved.append(target)
        self._warn(path, f"{leads} outside, to {_readable(target)}; left out until you approve of that file", line)
        return False

    def _warn(self, path: Path, reason: str, line: int | None = None) -> None:
        self.notes.append(InstructionWarning(path=path, line=line, reason=reason))


def _read_text(path: Path) -> str:
    """The text of a file. Raises `OSError`, and `ValueError` saying what it is instead of a text."""
    # Asked first, because opening a pipe would wait for its other end.
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
    """The directories from *project* to *working*; only the two, when one is not above the other."""
    if not working.is_relative_to(project):
        return [project, working]
    steps = working.relative_to(project).parts
    return [project.joinpath(*steps[:count]) for count in range(len(steps) + 1)]


def _real(path: Path) -> Path:
    # `Path.resolve` raises on a loop of links; this does not.
    return Path(os.path.realpath(path))


def _readable(path: Path) -> str:
    """A path as text that can be encoded, whatever bytes it is made of."""
    return os.fsencode(path).decode("utf-8", "replace")


def _section(file: InstructionFile) -> str:
    purpose = f" for={quoteattr(', '.join(file.paths))}" if file.paths else ""
    opening = f"<instructions file={quoteattr(_readable(file.path))} of={quoteattr(_OWNERS[file.scope])}{purpose}>"
    return f"{opening}\n{file.text.strip()}\n</instructions>"
