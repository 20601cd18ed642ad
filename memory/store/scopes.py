"""Memory scopes: the directory of each store, and directories that can be none."""

import hashlib
import os
import re
import unicodedata
from pathlib import Path
from typing import Literal

import attrs

from coterie.memory.errors import MemoryRefused

DIRECTORY_VARIABLE = "COTERIE_MEMORY_DIR"
AGENT_MEMORY = "agent-memory"
LOCAL_AGENT_MEMORY = "agent-memory-local"
SNAPSHOTS = "agent-memory-snapshots"
LEAST_PARTS = 3
"""A directory nearer to the root than this is somebody else's: `/`, `/home`."""
CLOSED = frozenset({".git", ".ssh", ".gnupg", ".aws", ".kube", ".docker", ".azure"})
"""Directories in which nobody wants memories."""

ScopeName = Literal["auto", "user", "project", "local"]
"""auto: the memory of a project, of one user. The others belong to a kind of agent: in all projects of a user, in one
project for everybody, or in one project of one user."""
AgentScopeName = Literal["user", "project", "local"]


@attrs.frozen(kw_only=True)
class MemoryScope:
    """The directory of one store; it need not exist."""

    scope: ScopeName
    kind: str | None = None
    """The kind of agent that it belongs to; None for the memory of a project."""
    directory: Path

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        return "auto memory" if self.kind is None else f"memory of {self.kind}, scope {self.scope}"


def project_scope(home: Path, slug: str, *, variable: str | None, setting: Path | None) -> MemoryScope:
    """The memory of the project called *slug*: where the *variable* or the *setting* says, else in *home*.

    Raises `MemoryRefused` for a directory that cannot be meant.
    """
    if variable:
        directory = check_directory(variable, DIRECTORY_VARIABLE)
    elif setting is not None:
        directory = check_directory(str(setting), "memory_directory")
    else:
        directory = home / "projects" / slug / "memory"
    return MemoryScope(scope="auto", directory=directory)


def agent_scope(kind: str, scope: AgentScopeName, *, home: Path, project: Path) -> MemoryScope:
    """The memory of agents of *kind*; *project* is the directory in which the project keeps Coterie's files."""
    parent = {
        "user": home / AGENT_MEMORY,
        "project": project / AGENT_MEMORY,
        "local": project / LOCAL_AGENT_MEMORY,
    }[scope]
    return MemoryScope(scope=scope, kind=kind, directory=parent / directory_name(kind))


def snapshot_directory(kind: str, project: Path) -> Path:
    """Where *project* may keep what agents of *kind* begin with."""
    return project / SNAPSHOTS / directory_name(kind)


def directory_name(kind: str) -> str:
    """The name of a kind of agent as that of a directory; different kinds have different ones, but for `:` and `-`."""
    name = unicodedata.normalize("NFC", kind).replace(":", "-")
    safe = re.sub(r"[^\w.-]", "-", name).lstrip(".")[:100]
    if safe == name:
        return safe
    return f"{safe}-{hashlib.blake2b(kind.encode('utf-8', 'surrogatepass'), digest_size=3).hexdigest()}"


def check_directory(text: str, source: str) -> Path:
    """The directory that *text* means. Raises `MemoryRefused`, naming the *source*, for one that cannot be meant."""
    if "\0" in text:
        raise MemoryRefused(source, "has a NUL in it; give the path of a directory")
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise MemoryRefused(source, f"is {text!r}; it should be an absolute path, or begin with ~/")
    path = Path(os.path.normpath(path))
    # Both: what is written may lead elsewhere, and what it leads to may be no better.
    for place in (path, Path(os.path.realpath(path))):
        if reason := _objection(place):
            raise MemoryRefused(source, f"is {text!r}, {reason}; give a directory for memories alone")
    return path


def _objection(path: Path) -> str | None:
    """Why *path* cannot be a store, as far as its name says."""
    if len(path.parts) < LEAST_PARTS:
        return "which is too near to the root"
    home = Path.home()
    if home.is_relative_to(path):
        return "which holds all of your files"
    if closed := next((part for part in path.parts if part.casefold() in CLOSED), None):
        return f"which is in {closed}"
    return None
