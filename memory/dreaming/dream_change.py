"""The change that a dream proposes: hunks with evidence, stored next to the change log."""

import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import msgspec

from coterie.clock import Clock
from coterie.files import replace_file
from coterie.memory.dreaming.hunks import DreamFile, Hunk, HunkState
from coterie.memory.errors import DreamRefused

VERSION = 1
DREAMS = Path(".history", "dreams")
"""Directory of stored dreams, relative to the directory of a memory store."""
TURNS_KEPT = 30
_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")


@attrs.frozen(kw_only=True)
class RecallTest:
    """Result of a recall test: past queries are run before and after a dream."""

    queries: int
    """Number of past queries; 0 if none were logged."""
    found: int = 0
    """Memories found before the dream, over all queries."""
    kept: int = 0
    """Those of them that the same query still finds after the dream."""
    lost: tuple[str, ...] = ()
    """Memories that a query found before the dream but not after it, as `query -> memory`; only the first few."""

    @property
    def share(self) -> float:
        """Share of the found memories that are lost."""
        return 1 - self.kept / self.found if self.found else 0.0


@attrs.frozen(kw_only=True)
class DreamChange:
    """All changes that one dream proposes, and their state."""

    id: str
    at: float
    session: str | None = None
    agent: str | None = None
    files: tuple[DreamFile, ...] = ()
    held: str | None = None
    """The reason why no hunk was applied automatically; None if the change was not held back."""
    recall: RecallTest | None = None
    notes: tuple[str, ...] = ()
    """Files that the dream skipped, each with the reason."""
    turns: tuple[str, ...] = ()
    """The last turns of the model: its text and its calls."""
    seconds: float = 0.0
    cost_usd: str = "0"

    @property
    def group(self) -> str:
        """Group id of the dream's changes in the change log of the store."""
        return f"dream-{self.id}"

    @property
    def hunks(self) -> list[Hunk]:
        """The hunks of all files of the dream."""
        return [hunk for file in self.files for hunk in file.hunks]

    def count(self, state: HunkState) -> int:
        """Count the hunks in *state*."""
        return sum(hunk.state == state for hunk in self.hunks)

    def with_hunks(self, update: Callable[[Hunk], Hunk]) -> "DreamChange":
        """Return the change with every hunk replaced by the result of *update*."""
        files = (attrs.evolve(file, hunks=tuple(map(update, file.hunks))) for file in self.files)
        return attrs.evolve(self, files=tuple(files))

    def to_bytes(self) -> bytes:
        """Encode the dream as one JSON object."""
        return msgspec.json.encode({"v": VERSION, **msgspec.to_builtins(self)}) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "DreamChange":
        """Decode the output of `to_bytes`. Raises `ValueError` for any other input."""
        members: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
        if members.get("v") != VERSION:
            raise ValueError(f"version {members.get('v')} is not supported; this program reads {VERSION}")
        return msgspec.convert(members, cls)


def new_dream_id(clock: Clock) -> str:
    """Return a new id that sorts by time; a random suffix distinguishes dreams of the same second."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(clock.now()))}-{secrets.token_hex(2)}"


def save_change(directory: Path, change: DreamChange) -> None:
    """Store *change* next to the change log of the store in *directory*. Blocks; durable. Raises `OSError`."""
    path = directory / DREAMS / f"{change.id}.json"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, change.to_bytes(), mode=0o600)


def load_changes(directory: Path) -> list[DreamChange]:
    """Return all stored changes, newest first; unreadable files are skipped. Blocks."""
    changes = []
    for path in sorted((directory / DREAMS).glob("*.json"), reverse=True):
        if _ID.fullmatch(path.stem):
            try:
                changes.append(DreamChange.from_bytes(path.read_bytes()))
            except (OSError, ValueError):
                continue
    return changes


def find_change(directory: Path, name: str | None) -> DreamChange:
    """Return the change whose id begins with *name*; without a name, the newest change with a waiting hunk.

    Blocks. Raises `DreamRefused` if there is no such change, or more than one.
    """
    changes = load_changes(directory)
    if name is None:
        found = [change for change in changes if change.count("waiting")][:1]
    else:
        found = [change for change in changes if change.id.startswith(name.removeprefix("dream-"))]
    if len(found) == 1:
        return found[0]
    if found:
        raise DreamRefused(f"{name!r} matches {len(found)} dreams; give a longer prefix")
    if name is None:
        raise DreamRefused(f"no dream of {directory} waits for approval")
    newest = f"the newest is {changes[0].id}" if changes else "there are no dreams yet"
    raise DreamRefused(f"no dream of {directory} has the id {name!r}; {newest}")
