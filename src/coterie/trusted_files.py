"""Files and contents that the user has approved once for a project."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Literal, Self

import attrs
from filelock import FileLock

from coterie.errors import ConfigInvalid
from coterie.files import replace_file
from coterie.paths import home_directory
from coterie.session_directory import project_slug

VERSION = 1
LOCK_TIMEOUT = 10.0

TrustedKind = Literal["hooks", "servers"]
"""What contents are about; an approval of one says nothing of another."""


@attrs.frozen
class _TrustRecord:
    """A record of approvals; each question reads it anew, so another process's answer counts at once."""

    path: Path
    _member: ClassVar[str]

    def _add(self, entries: Iterable[str]) -> None:
        """Record *entries*; approvals made at the same time are all kept.

        Blocks. Raises `ConfigInvalid`, `OSError`, and `filelock.Timeout` if another process holds the record for too
        long; nothing is then approved.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(f"{self.path}.lock", timeout=LOCK_TIMEOUT, thread_local=False):
            kept = sorted({*self._load(), *entries})
            # The standard library's JSON, because it keeps names that are not UTF-8.
            record = json.dumps({"v": VERSION, self._member: kept}, indent=1)
            replace_file(self.path, f"{record}\n".encode(), mode=0o600)

    def _load(self) -> list[str]:
        """What is recorded. Raises `ConfigInvalid` if the record cannot be read."""
        try:
            record = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as exc:
            raise ConfigInvalid(str(self.path), f"cannot be read: {exc}; delete it to approve anew") from exc
        if not isinstance(record, dict) or record.get("v") != VERSION or not isinstance(record.get(self._member), list):
            raise ConfigInvalid(str(self.path), "is not a record of approvals; delete it to approve anew")
        return [str(entry) for entry in record[self._member]]


@attrs.frozen
class TrustedFiles(_TrustRecord):
    """The files outside a project that its user let instruction files include."""

    _member: ClassVar = "paths"

    @classmethod
    def of(cls, project: Path) -> Self:
        """The record of the project whose root is *project*; it need not exist."""
        return cls(home_directory() / "projects" / project_slug(project) / "approved-includes.json")

    def __contains__(self, file: Path) -> bool:
        """Whether *file*, links followed, was approved. Raises `ConfigInvalid` if the record cannot be read."""
        return str(file.resolve()) in self._load()

    def approve(self, file: Path) -> None:
        """Record *file*, links followed.

        Blocks. Raises `ConfigInvalid`, `OSError`, and `filelock.Timeout`; nothing is then approved.
        """
        self._add([str(file.resolve())])


@attrs.frozen
class TrustedContents(_TrustRecord):
    """What a project's files may start, by content: one changed byte, and the user is asked again."""

    _member: ClassVar = "digests"

    @classmethod
    def of(cls, project: Path, matter: TrustedKind) -> Self:
        """The record of the project whose root is *project*, for one *matter*; it need not exist."""
        return cls(home_directory() / "projects" / project_slug(project) / f"approved-{matter}.json")

    def __contains__(self, content: bytes) -> bool:
        """Whether *content* was approved. Raises `ConfigInvalid` if the record cannot be read."""
        return _digest(content) in self._load()

    def approve(self, *contents: bytes) -> None:
        """Record *contents*, of which only digests are kept.

        Blocks. Raises `ConfigInvalid`, `OSError`, and `filelock.Timeout`; nothing is then approved.
        """
        self._add(map(_digest, contents))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
