"""Tracking of the file versions that a model has read."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import attrs

from coterie.agents.errors import ToolFailed

FILE_LIMIT = 10_000
"""Maximum number of tracked files; the oldest ones are forgotten and must be read again."""
LARGEST = 8 * 1024 * 1024
"""Maximum bytes of a tracked file; larger files are not tracked and cannot be changed by a tool."""


@attrs.define(eq=False)
class ReadFiles:
    """Versions of the files that the model of one agent has read. Owned by the task that runs the agent's tools.

    A version is a hash of the content, regardless of time and size. Paths are absolute, with links followed.
    """

    _versions: dict[Path, bytes] = attrs.field(factory=dict, init=False, repr=False)
    _undrained: dict[Path, None] = attrs.field(factory=dict, init=False, repr=False)
    """Paths with a new version since `take_changes` or `restore`, in the order of recording."""

    def record(self, path: Path, content: bytes) -> None:
        """Record that the model has seen *path*, or a part of it, while its whole content was *content*."""
        version = _version(content)
        if version != self._versions.get(path):
            self._undrained.pop(path, None)
            self._undrained[path] = None
        self._remember(path, version)

    def check(self, path: Path, content: bytes | None = None) -> None:
        """Raise `ToolFailed` unless the model has seen the current version of the file; `OSError` if it is missing.

        Pass *content* if it is used afterwards, so that the checked version is the used one. Without *content* this
        reads the file and blocks.
        """
        if path not in self._versions:
            raise ToolFailed(f"{path} has not been read yet. Read it first, then change it.")
        if _version(path.read_bytes() if content is None else content) != self._versions[path]:
            raise ToolFailed(f"{path} has changed since it was read. Read it again, then change it.")

    def take_changes(self) -> dict[str, str]:
        """Return the versions recorded since the last call: path -> hash in hex.

        Omits paths that are not UTF-8, because they cannot be recorded; such files must be read again after a resume.
        """
        drained = {str(path): self._versions[path].hex() for path in self._undrained if _is_utf8(path)}
        self._undrained.clear()
        return drained

    def known(self) -> dict[str, str]:
        """Return all versions in the format of `take_changes`, for a fork of the agent."""
        return {str(path): version.hex() for path, version in self._versions.items() if _is_utf8(path)}

    def restore(self, versions: Mapping[str, str]) -> None:
        """Restore versions that `take_changes` returned in an earlier run. Raises `ValueError` for invalid hex."""
        for path, version in versions.items():
            self._remember(Path(path), bytes.fromhex(version))

    def _remember(self, path: Path, version: bytes) -> None:
        self._versions.pop(path, None)
        self._versions[path] = version
        if len(self._versions) > FILE_LIMIT:
            forgotten = next(iter(self._versions))
            del self._versions[forgotten]
            self._undrained.pop(forgotten, None)


def _version(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _is_utf8(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True
