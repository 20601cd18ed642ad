"""Records of the files and contents that the user has approved for a project."""

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
"""Category of approved contents: "hooks" (commands at events), or MCP "servers". Each approval is for one category."""


@attrs.frozen
class _TrustRecord:
    """File of approvals. Each check reads the file again, so approvals by other processes take effect immediately."""

    path: Path
    _member: ClassVar[str]

    def _add(self, entries: Iterable[str]) -> None:
        """Add *entries* to the file; concurrent additions by several processes are all stored.

        Blocks. Raises `ConfigInvalid`, `OSError`, and `filelock.Timeout` if another process holds the lock too long;
        then nothing is approved.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(f"{self.path}.lock", timeout=LOCK_TIMEOUT, thread_local=False):
            kept = sorted({*self._load(), *entries})
            # The json module keeps file names that are not valid UTF-8; msgspec refuses them.
            record = json.dumps({"v": VERSION, self._member: kept}, indent=1)
            replace_file(self.path, f"{record}\n".encode(), mode=0o600)

    def _load(self) -> list[str]:
        """Return the recorded entries, none if the file is missing. Raises `ConfigInvalid` if it cannot be read."""
        try:
            record = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as exc:
            raise ConfigInvalid(
                str(self.path), f"cannot be read: {exc}; delete this record of your approvals, and approve again"
            ) from exc
        if not isinstance(record, dict) or record.get("v") != VERSION or not isinstance(record.get(self._member), list):
            raise ConfigInvalid(str(self.path), "this file is no record of approvals; delete it, and approve again")
        return [str(entry) for entry in record[self._member]]


@attrs.frozen
class TrustedFiles(_TrustRecord):
    """The files outside a project that instruction files of the project may include, because the user approved them."""

    _member: ClassVar = "paths"

    @classmethod
    def of(cls, project: Path) -> Self:
        """Return the record of the project with the root *project*; the file need not exist."""
        return cls(home_directory() / "projects" / project_slug(project) / "approved-includes.json")

    def __contains__(self, file: Path) -> bool:
        """Return True if *file*, with links resolved, was approved. Raises `ConfigInvalid` for an unreadable record."""
        return str(file.resolve()) in self._load()

    def approve(self, file: Path) -> None:
        """Approve *file*, with links in its path resolved.

        Blocks. Raises `ConfigInvalid`, `OSError`, and `filelock.Timeout`; then nothing is approved.
        """
        self._add([str(file.resolve())])


@attrs.frozen
class TrustedContents(_TrustRecord):
    """Approved configuration that starts programs, such as hooks; after any change the user must approve it again."""

    _member: ClassVar = "digests"

    @classmethod
    def of(cls, project: Path, category: TrustedKind) -> Self:
        """Return the record of one *category* for the project with the root *project*; the file need not exist."""
        return cls(home_directory() / "projects" / project_slug(project) / f"approved-{category}.json")

    def __contains__(self, content: bytes) -> bool:
        """Return True if *content* was approved. Raises `ConfigInvalid` if the record cannot be read."""
        return _digest(content) in self._load()

    def approve(self, *contents: bytes) -> None:
        """Approve *contents*; only their digests are stored.

        Blocks. Raises `ConfigInvalid`, `OSError`, and `filelock.Timeout`; then nothing is approved.
        """
        self._add(map(_digest, contents))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
