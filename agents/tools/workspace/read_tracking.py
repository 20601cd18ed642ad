"""Tracking of the file versions that a model has read."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import attrs

from coterie.agents.errors import ToolFailed

REMEMBERED = 10_000
"""Files; of more, the one that was noted longest ago is forgotten and must be read again."""
LARGEST = 8 * 1024 * 1024
"""Bytes of a file whose versions are told apart. No larger one is noted, or changed by a tool that edits."""


@attrs.define(eq=False)
class ReadFiles:
    """What one agent's model knows of files. Belongs to the task that runs the agent's tools.

    Versions are told apart by content alone: a file that was only touched is the same, and a change that leaves
    time and size as they were is one nevertheless. Paths are absolute, with links followed.
    """

    _versions: dict[Path, bytes] = attrs.field(factory=dict, init=False, repr=False)
    _undrained: dict[Path, None] = attrs.field(factory=dict, init=False, repr=False)
    """Paths whose version is not the one that was drained or restored last, in the order they were noted."""

    def record(self, path: Path, content: bytes) -> None:
        """The model has seen *path*, or a part of it, when *content* was all that stood there."""
        version = _version(content)
        if version != self._versions.get(path):
            self._undrained.pop(path, None)
            self._undrained[path] = None
        self._remember(path, version)

    def check(self, path: Path, content: bytes | None = None) -> None:
        """Return if the model has seen the file as it is now. Raises `ToolFailed`, and `OSError` if it is not there.

        Whoever goes on to work with the content passes it, so that what is checked is what is worked with. Without it
        the file is read, which blocks.
        """
        if path not in self._versions:
            raise ToolFailed(f"{path} has not been read yet. Read it first, then change it.")
        if _version(path.read_bytes() if content is None else content) != self._versions[path]:
            raise ToolFailed(f"{path} has changed since it was read. Read it again, then change it.")

    def take_changes(self) -> dict[str, str]:
        """The versions noted since this was last asked, in hex, by path.

        A path that is not UTF-8 is left out: it cannot be recorded, and the file must be read again after a resume.
        """
        drained = {str(path): self._versions[path].hex() for path in self._undrained if _is_utf8(path)}
        self._undrained.clear()
        return drained

    def known(self) -> dict[str, str]:
        """All versions, as `take_changes` gives the new ones, for another agent to begin with."""
        return {str(path): version.hex() for path, version in self._versions.items() if _is_utf8(path)}

    def restore(self, versions: Mapping[str, str]) -> None:
        """Take over what `take_changes` gave in an earlier run. Raises `ValueError` for a version that is not hex."""
        for path, version in versions.items():
            self._remember(Path(path), bytes.fromhex(version))

    def _remember(self, path: Path, version: bytes) -> None:
        self._versions.pop(path, None)
        self._versions[path] = version
        if len(self._versions) > REMEMBERED:
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
