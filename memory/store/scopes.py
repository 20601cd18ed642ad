"""Memory scopes: the directory of the memory store of each scope, and checks of directories for memories."""

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
"""Minimum number of path components of a memory directory, including `/`; `/home` is refused as too general."""
CLOSED = frozenset({".git", ".ssh", ".gnupg", ".aws", ".kube", ".docker", ".azure"})
"""Names of directories in which, or below which, no memories may be stored."""

ScopeName = Literal["auto", "user", "project", "local"]
"""auto: memories of one user for one project. The others belong to an agent type: "user" for all projects of a user,
"project" for all users of a project, "local" for one user in one project.
"""
AgentScopeName = Literal["user", "project", "local"]


@attrs.frozen(kw_only=True)
class MemoryScope:
    """One memory store: its scope, its agent type and its directory, which may not exist yet."""

    scope: ScopeName
    kind: str | None = None
    """Agent type to which the store belongs, such as `reviewer`; None for the memories of a project."""
    directory: Path

    @property
    def title(self) -> str:
        """Short name of the store for people, such as "memory of reviewer, scope user"."""
        return "auto memory" if self.kind is None else f"memory of {self.kind}, scope {self.scope}"


def project_scope(home: Path, slug: str, *, variable: str | None, setting: Path | None) -> MemoryScope:
    """Return the scope with the user's memories of the project *slug*; its directory is in *home* by default.

    *variable* (`COTERIE_MEMORY_DIR`), or else *setting*, replaces it. Raises `MemoryRefused` if that is not allowed.
    """
    if variable:
        directory = check_directory(variable, DIRECTORY_VARIABLE)
    elif setting is not None:
        directory = check_directory(str(setting), "memory_directory")
    else:
        directory = home / "projects" / slug / "memory"
    return MemoryScope(scope="auto", directory=directory)


def agent_scope(kind: str, scope: AgentScopeName, *, home: Path, project: Path) -> MemoryScope:
    """Return the memory store of the agent type *kind* in *scope*; *project* is the project's `.coterie` directory."""
    parent = {
        "user": home / AGENT_MEMORY,
        "project": project / AGENT_MEMORY,
        "local": project / LOCAL_AGENT_MEMORY,
    }[scope]
    return MemoryScope(scope=scope, kind=kind, directory=parent / directory_name(kind))


def snapshot_directory(kind: str, project: Path) -> Path:
    """Return the directory of initial memories for the agent type *kind*; *project* is the project's `.coterie`."""
    return project / SNAPSHOTS / directory_name(kind)


def directory_name(kind: str) -> str:
    """Return a directory name for the agent type *kind*: `:` becomes `-`; after other changes, a hash is appended."""
    name = unicodedata.normalize("NFC", kind).replace(":", "-")
    safe = re.sub(r"[^\w.-]", "-", name).lstrip(".")[:100]
    if safe == name:
        return safe
    return f"{safe}-{hashlib.blake2b(kind.encode('utf-8', 'surrogatepass'), digest_size=3).hexdigest()}"


def check_directory(text: str, source: str) -> Path:
    """Return the memory directory *text* as a path. Raises `MemoryRefused`, naming *source*, if it is not allowed."""
    if "\0" in text:
        raise MemoryRefused(source, "contains a NUL character; give the path of a directory")
    path = Path(text).expanduser()
    if not path.is_absolute():
        raise MemoryRefused(source, f"is {text!r}; it should be an absolute path, or begin with ~/")
    path = Path(os.path.normpath(path))
    # Check the path and its target: the path may be a link to a directory that is not allowed.
    for place in (path, Path(os.path.realpath(path))):
        if reason := _objection(place):
            raise MemoryRefused(source, f"is {text!r}, {reason}; give a directory that holds only memories")
    return path


def _objection(path: Path) -> str | None:
    """Return the reason, as a relative clause, why *path* cannot hold memories; None if its name allows it."""
    if len(path.parts) < LEAST_PARTS:
        return "which is too close to the root directory"
    home = Path.home()
    if home.is_relative_to(path):
        return "which holds all of your files"
    if closed := next((part for part in path.parts if part.casefold() in CLOSED), None):
        return f"which is inside {closed}"
    return None
