"""The change that a dream proposes: hunks with evidence, kept beside the change log."""

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
"""In the directory of a store."""
TURNS_KEPT = 30
_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")

"""Whether what a dream deletes waits for the user, or goes at once."""


@attrs.frozen(kw_only=True)
class RecallTest:
    """Whether past queries still find what they found before."""

    queries: int
    """None were there to test with if this is 0."""
    found: int = 0
    """Memories that were found before, over all queries."""
    kept: int = 0
    """Those of them that are found after, where they are now."""
    lost: tuple[str, ...] = ()
    """What is not, as `query -> memory`; the first of them."""

    @property
    def share(self) -> float:
        """The part of what was found that is no longer."""
        return 1 - self.kept / self.found if self.found else 0.0


@attrs.frozen(kw_only=True)
class DreamChange:
    """All that one dream wants to change, and what became of it."""

    id: str
    at: float
    session: str | None = None
    agent: str | None = None
    files: tuple[DreamFile, ...] = ()
    held: str | None = None
    """Why nothing of it was applied at once; None if it was not held back."""
    recall: RecallTest | None = None
    notes: tuple[str, ...] = ()
    """What was passed over, and why."""
    turns: tuple[str, ...] = ()
    """What the model said and did, turn by turn; the last of them."""
    seconds: float = 0.0
    cost_usd: str = "0"

    @property
    def group(self) -> str:
        """What its changes are called in the history of the store."""
        return f"dream-{self.id}"

    @property
    def hunks(self) -> list[Hunk]:
        """Of all files."""
        return [hunk for file in self.files for hunk in file.hunks]

    def count(self, state: HunkState) -> int:
        """How many hunks are in *state*."""
        return sum(hunk.state == state for hunk in self.hunks)

    def with_hunks(self, update: Callable[[Hunk], Hunk]) -> "DreamChange":
        """The same with each hunk as *update* makes it."""
        files = (attrs.evolve(file, hunks=tuple(map(update, file.hunks))) for file in self.files)
        return attrs.evolve(self, files=tuple(files))

    def to_bytes(self) -> bytes:
        """One JSON object."""
        return msgspec.json.encode({"v": VERSION, **msgspec.to_builtins(self)}) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "DreamChange":
        """What `to_bytes` wrote. Raises `ValueError` for anything else."""
        members: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
        if members.get("v") != VERSION:
            raise ValueError(f"it is of version {members.get('v')}; this program reads {VERSION}")
        return msgspec.convert(members, cls)


def new_dream_id(clock: Clock) -> str:
    """Sorts by time; the tail keeps two of one second apart."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(clock.now()))}-{secrets.token_hex(2)}"


def save_change(directory: Path, change: DreamChange) -> None:
    """Keep *change* beside the history of the store in *directory*. Blocks; durable. Raises `OSError`."""
    path = directory / DREAMS / f"{change.id}.json"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, change.to_bytes(), mode=0o600)


def load_changes(directory: Path) -> list[DreamChange]:
    """All changes that are kept, the newest first; what cannot be read is passed over. Blocks."""
    changes = []
    for path in sorted((directory / DREAMS).glob("*.json"), reverse=True):
        if _ID.fullmatch(path.stem):
            try:
                changes.append(DreamChange.from_bytes(path.read_bytes()))
            except (OSError, ValueError):
                continue
    return changes


def find_change(directory: Path, name: str | None) -> DreamChange:
    """The change whose id begins with *name*; without one, the newest of which something waits.

    Blocks. Raises `DreamRefused` if there is none, or more than one.
    """
    changes = load_changes(directory)
    if name is None:
        found = [change for change in changes if change.count("waiting")][:1]
    else:
        found = [change for change in changes if change.id.startswith(name.removeprefix("dream-"))]
    if len(found) == 1:
        return found[0]
    if found:
        raise DreamRefused(f"{name!r} begins the ids of {len(found)} dreams; give more of it")
    if name is None:
        raise DreamRefused(f"no dream of {directory} waits for an answer")
    newest = f"the newest is {changes[0].id}" if changes else "there are none yet"
    raise DreamRefused(f"no dream of {directory} is called {name!r}; {newest}")
