"""Loader of instruction files such as `CLAUDE.md`, in which people write instructions for all agents in a directory.

The files are loaded in a fixed order. A file with a problem causes a warning, and is loaded as far as possible.
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
"""Names of instruction files in `/etc/coterie` and `~/.coterie`; `rules/` is a directory of rule files."""
PROJECT_NAMES = ("CLAUDE.md", "AGENTS.md", ".claude/CLAUDE.md", ".claude/rules/")
PRIVATE_NAMES = ("CLAUDE.local.md", "AGENTS.local.md")
HOPS = 4
"""Largest depth of nested includes (a file that is included by an included file has depth 2)."""
LONG = 40_000
"""Size in characters above which a file is loaded with a warning, because it is part of every model call."""
SIZE_LIMIT = 1_000_000
"""Largest instruction file in bytes; a larger one is not loaded, because it does not fit into a context window."""
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
    """Directories in which the instruction files for one working directory are searched."""

    home: Path
    """Directory of Coterie in the user's home, such as `~/.coterie`, with files that apply to all projects."""
    project: Path
    """Top directory of the git checkout, or of the worktree, which has its own copies of the instruction files."""
    working: Path
    managed: Path = MANAGED


@attrs.frozen(kw_only=True)
class InstructionFile:
    """An instruction file that was loaded: path, text, scope (such as user), and the files to which it applies."""

    path: Path
    scope: InstructionScope
    text: str
    paths: tuple[str, ...] = ()
    """Patterns of the files to which a rule applies; empty if it always applies."""
    included_by: Path | None = None

    def to_text(self) -> str:
        """Return the text in an XML element for a model, with path, author (such as the project) and file patterns."""
        purpose = f" for={quoteattr(', '.join(self.paths))}" if self.paths else ""
        opening = f"<instructions file={quoteattr(_readable(self.path))} of={quoteattr(_OWNERS[self.scope])}{purpose}>"
        return f"{opening}\n{self.text.strip()}\n</instructions>"


@attrs.frozen(kw_only=True)
class InstructionWarning:
    """Warning about an instruction file that was not loaded, was loaded only in part, or is too long."""

    path: Path
    line: int | None
    """Number of the line with the problem, such as an include; None if the warning concerns the whole file."""
    reason: str

    @property
    def source(self) -> str:
        """Place of the problem for messages: `path:line`, or only the path if the whole file is concerned."""
        return _readable(self.path) + ("" if self.line is None else f":{self.line}")

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


@attrs.frozen(kw_only=True)
class Instructions:
    """All loaded instruction files in order (later files take precedence), and warnings about files with problems."""

    files: tuple[InstructionFile, ...]
    notes: tuple[InstructionWarning, ...]
    unapproved: tuple[Path, ...]
    """Resolved paths of files (includes, link targets) that were not loaded, because the user has not approved them."""

    def to_text(self) -> str:
        """Return the text of all files for the context of a model, each with path and author; empty without files."""
        return "\n\n".join(file.to_text() for file in self.files)


def read_instructions(project: Path) -> Instructions:
    """Load the instruction files for *project*. Blocks. Raises `ConfigInvalid` for an unreadable file of approvals."""
    # The files come from this checkout; approvals are shared by all worktrees of the project.
    places = InstructionPaths(home=home_directory(), project=checkout_root(project), working=project)
    return load_instructions(places, TrustedFiles.of(project_root(project)).__contains__)


def load_instructions(places: InstructionPaths, approved: Callable[[Path], bool]) -> Instructions:
    """Load the instruction files of *places*: `managed`, `home`, then each directory from `project` down to `working`.

    An included file precedes the file that includes it. A file that is reached twice keeps its first position. If no
    directory of *places* contains both a file and its include, or a link of the project and its target, *approved* must
    return True for the resolved path. A problem in a file becomes a warning. Blocks.
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
    """An existing instruction file that is about to be loaded, and the way in which it was found."""

    path: Path
    """Path of the file as shown in warnings and to the model."""
    real: Path
    """Path with links resolved, by which a file that is found twice is recognized."""
    scope: InstructionScope
    is_rule: bool = False
    included_by: Path | None = None
    hops: int = 0


@attrs.define(eq=False)
class _Loader:
    """State of one loading of all instruction files: the loaded files and the warnings so far."""

    roots: tuple[Path, ...]
    approved: Callable[[Path], bool]
    files: list[InstructionFile] = attrs.field(factory=list)
    notes: list[InstructionWarning] = attrs.field(factory=list)
    unapproved: list[Path] = attrs.field(factory=list)
    _seen: set[Path] = attrs.field(factory=set)

    def load_named(self, directory: Path, names: Iterable[str], scope: InstructionScope) -> None:
        """Load the existing files *names* in *directory*, each after its includes; for `rules/`, all rules below it."""
        for name in names:
            if not name.endswith("/"):
                self._load_path(resolve_file_name(directory / name), scope)
                continue
            for path in list_rule_files(
                directory / name, lambda path, exc: self._warn(path, f"cannot be listed: {exc.strerror}; check it")
            ):
                self._load_path(path, scope, is_rule=True)

    def _load_path(self, path: Path, scope: InstructionScope, *, is_rule: bool = False) -> None:
        try:
            real = Path(os.path.realpath(path, strict=True))
        except (FileNotFoundError, NotADirectoryError):
            if path.is_symlink():
                self._warn(path, "is a link to a missing file; correct the link or delete it")
            return
        except OSError as exc:
            self._warn(path, f"cannot be read: {exc.strerror}; check the file and its permissions")
            return
        # Links are trusted in the user's and the managed directory, but not in a project.
        is_free = scope in ("managed", "user") or self._is_free(path, real)
        if real not in self._seen and (is_free or self._is_approved(real, path, "leads")):
            self._load(_FoundFile(path=path, real=real, scope=scope, is_rule=is_rule))

    def _load(self, found: _FoundFile) -> None:
        self._seen.add(found.real)
        if len(self.files) >= FILE_LIMIT:
            self._warn(found.path, f"is not loaded: the limit of {FILE_LIMIT} instruction files is reached; merge some")
            return
        text = ""
        try:
            text = _read_text(found.real)
        except OSError as exc:
            self._warn(found.path, f"cannot be read: {exc.strerror}; check the file and its permissions")
        except ValueError as exc:
            self._warn(found.path, f"is not loaded: {exc}")
        for include in find_includes(text):
            self._load_include(include, found)
        if len(text) > LONG:
            self._warn(found.path, f"has {len(text):,} characters, which each turn pays for; shorten it to {LONG:,}")
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
            reason = f"@{include.path} is not loaded: more than {HOPS} nested includes; include it directly"
            self._warn(by.path, reason, include.line)
        elif self._is_free(by.real, target) or self._is_approved(
            target, by.path, f"@{include.path} leads", include.line
        ):
            self._load(_FoundFile(path=target, real=target, scope=by.scope, included_by=by.path, hops=by.hops + 1))

    def _is_free(self, file: Path, target: Path) -> bool:
        """True if *file* may include, or link to, *target* without approval: a directory in `roots` contains both."""
        return any(file.is_relative_to(root) and target.is_relative_to(root) for root in self.roots)

    def _is_approved(self, target: Path, path: Path, leads: str, line: int | None = None) -> bool:
        if self.approved(target):
            return True
        self.unapproved.append(target)
        self._warn(
            path, f"{leads} outside the project, to {_readable(target)}; not loaded, approve it in `coterie run`", line
        )
        return False

    def _warn(self, path: Path, reason: str, line: int | None = None) -> None:
        self.notes.append(InstructionWarning(path=path, line=line, reason=reason))


def _read_text(path: Path) -> str:
    """Return the text of the file *path*. Raises `OSError`, `ValueError` if it is too large or no UTF-8 text file."""
    # Checked first, because opening a pipe would block.
    if not path.is_file():
        raise ValueError("the instruction file is not a regular file; replace it by a text file")
    with path.open("rb") as stream:
        content = stream.read(SIZE_LIMIT + 1)
    if len(content) > SIZE_LIMIT:
        raise ValueError(f"the instruction file is larger than {SIZE_LIMIT:,} bytes; shorten it")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ValueError("the instruction file is not in UTF-8; convert it") from exc
    if "\0" in text:
        raise ValueError("the instruction file has a NUL byte, so it is not text; remove the byte")
    return text


def _directories_between(project: Path, working: Path) -> list[Path]:
    """Return the directories from *project* down to *working*; only these two if *working* is not below *project*."""
    if not working.is_relative_to(project):
        return [project, working]
    steps = working.relative_to(project).parts
    return [project.joinpath(*steps[:count]) for count in range(len(steps) + 1)]


def _real(path: Path) -> Path:
    # `Path.resolve` raises on a loop of links, but `realpath` does not.
    return Path(os.path.realpath(path))


def _readable(path: Path) -> str:
    """Return *path* as valid Unicode text; bytes in it that are not UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


OVERRIDES = {"AGENTS.md": "AGENTS.override.md"}
"""Maps the name of an instruction file to the name of a file that, if it exists, is loaded instead."""


def resolve_file_name(path: Path) -> Path:
    """Return the existing file to load for the instruction file *path*; *path* itself if none exists.

    The order is: an override such as `AGENTS.override.md`, *path*, a name that differs only in case. Blocks.
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
    """Yield the `.md` files (rules) in and below *directory*, sorted by name; links to directories are not followed.

    *on_failure* is called with the path of each directory that exists but cannot be listed, and the error.
    """

    def on_error(exc: OSError) -> None:
        if not isinstance(exc, FileNotFoundError | NotADirectoryError):
            on_failure(Path(exc.filename), exc)

    for name, directories, files in os.walk(directory, onerror=on_error):
        directories.sort()
        yield from (Path(name, file) for file in sorted(files) if file.endswith(".md"))


_COMMA = re.compile(r",(?![^{]*\})")
"""Pattern of a comma between two file patterns; a comma inside braces, as in `*.{ts,tsx}`, does not match."""


@attrs.frozen(kw_only=True)
class RuleText:
    """A parsed rule file: instructions, and patterns of the files to which they apply."""

    text: str
    """Instructions of the rule, without the front matter (YAML fields at the start of the file)."""
    paths: tuple[str, ...] = ()
    """Patterns of the files to which the rule applies; empty if it always applies."""
    notes: tuple[FieldWarning, ...] = ()


def parse_rule(text: str) -> RuleText:
    """Parse *text*, the content of a rule file with optional `paths` in its front matter. Never raises."""
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
