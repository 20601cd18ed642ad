"""The files outside a project that its user let instruction files include, kept over sessions."""

import json
from pathlib import Path

import attrs
from filelock import FileLock

from coterie.agents.errors import ConfigInvalid
from coterie.agents.home import home
from coterie.files import replace_file
from coterie.orchestrator.session import slug

VERSION = 1
LOCK_TIMEOUT = 10.0


@attrs.frozen
class ApprovedFiles:
    """A record of approvals; each question reads it anew, so another process's answer counts at once."""

    path: Path

    @classmethod
    def of(cls, project: Path) -> "ApprovedFiles":
        """The record of the project whose root is *project*; it need not exist."""
        return cls(home() / "projects" / slug(project) / "approved-includes.json")

    def __contains__(self, file: Path) -> bool:
        """Whether *file*, links followed, was approved. Raises `ConfigInvalid` if the record cannot be read."""
        return str(file.resolve()) in self._load()

    def approve(self, file: Path) -> None:
        """Record *file*, links followed; approvals made at the same time are all kept.

        Blocks. Raises `ConfigInvalid`, `OSError`, and `filelock.Timeout` if another process holds the record for too
        long; nothing is then approved.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(f"{self.path}.lock", timeout=LOCK_TIMEOUT, thread_local=False):
            paths = sorted({*self._load(), str(file.resolve())})
            # The standard library's JSON, because it keeps names that are not UTF-8.
            record = json.dumps({"v": VERSION, "paths": paths}, indent=1)
            replace_file(self.path, f"{record}\n".encode(), mode=0o600)

    def _load(self) -> list[str]:
        try:
            record = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as exc:
            raise ConfigInvalid(str(self.path), f"cannot be read: {exc}; delete it to approve anew") from exc
        if not isinstance(record, dict) or record.get("v") != VERSION or not isinstance(record.get("paths"), list):
            raise ConfigInvalid(str(self.path), "is not a record of approvals; delete it to approve anew")
        return [str(path) for path in record["paths"]]
