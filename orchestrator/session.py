"""A session on disk: where a run keeps what it must not lose."""

import re
import secrets
import time
from pathlib import Path

import attrs
import msgspec

from coterie.agents.home import home
from coterie.clock import Clock
from coterie.files import replace_file


@attrs.frozen(kw_only=True)
class Session:
    """One run: its id and its directory."""

    id: str
    directory: Path

    @classmethod
    def create(cls, project: Path, clock: Clock, *, task: str, model: str) -> "Session":
        """Make the directory of a new session of *project*, readable by its owner alone. Raises `OSError`."""
        started = clock.now()
        # Sorts by start; the tail keeps two starts in one second apart.
        id_ = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(started))}-{secrets.token_hex(3)}"
        directory = home() / "projects" / slug(project) / "sessions" / id_
        directory.mkdir(parents=True, mode=0o700)
        facts = {"v": 1, "id": id_, "project": str(project), "task": task, "model": model, "started": started}
        replace_file(directory / "session.json", msgspec.json.encode(facts) + b"\n")
        return cls(id=id_, directory=directory)

    def agent_directory(self, name: str) -> Path:
        """Where the agent *name* keeps its transcript; made when it is first asked for. Raises `OSError`."""
        directory = self.directory / "agents" / name
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        return directory


def slug(project: Path) -> str:
    """A project's path as a file name."""
    return re.sub(r"[^A-Za-z0-9]", "-", str(project.resolve()))
