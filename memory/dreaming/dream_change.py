"""The change that a dream (a model's consolidation of memories) proposes: hunks with evidence, saved as a JSON file."""

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
"""Directory with one JSON file for each dream (memory consolidation) and its proposed change, in a memory store."""
TURNS_KEPT = 30
_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")


@attrs.frozen(kw_only=True)
class RecallTest:
    """Result of a recall test: past queries are run on the memories before and after a dream (their consolidation)."""

    queries: int
    """Number of past queries that were run; 0 if the query log was empty, so that nothing was tested."""
    found: int = 0
    """Number of memories that the queries found before the dream, summed over all queries."""
    kept: int = 0
    """Number of memories in `found` that the same query finds after the dream too, even if merged into another file."""
    lost: tuple[str, ...] = ()
    """Memories that a query found before the dream but not after it, as `query -> memory`; only the first 20."""

    @property
    def share(self) -> float:
        """Share of the memories in `found` that the queries no longer find after the dream, from 0 to 1."""
        return 1 - self.kept / self.found if self.found else 0.0


@attrs.frozen(kw_only=True)
class DreamChange:
    """All changes that one dream (a model's consolidation of memories) proposes, as hunks with their states."""

    id: str
    at: float
    session: str | None = None
    agent: str | None = None
    files: tuple[DreamFile, ...] = ()
    held: str | None = None
    """Reason why no hunk (line change) was applied without approval, such as a dry run; None if not held back."""
    recall: RecallTest | None = None
    notes: tuple[str, ...] = ()
    """Messages for the user about edits that were ignored, and about evidence that names a missing transcript line."""
    turns: tuple[str, ...] = ()
    """One text for each of the model's last turns in the dream: its reply and the tools that it called, shortened."""
    seconds: float = 0.0
    cost_usd: str = "0"

    @property
    def group(self) -> str:
        """Id `dream-ID` of the dream's edits in the change log of the store; `coterie memory undo` accepts it."""
        return f"dream-{self.id}"

    @property
    def hunks(self) -> list[Hunk]:
        """The hunks (line changes) of all files that the dream changes, in one list."""
        return [hunk for file in self.files for hunk in file.hunks]

    def count(self, state: HunkState) -> int:
        """Return the number of hunks of the dream that are in *state*, such as "waiting"."""
        return sum(hunk.state == state for hunk in self.hunks)

    def with_hunks(self, update: Callable[[Hunk], Hunk]) -> "DreamChange":
        """Return a copy of the change in which every hunk is replaced by the result of *update* for that hunk."""
        files = (attrs.evolve(file, hunks=tuple(map(update, file.hunks))) for file in self.files)
        return attrs.evolve(self, files=tuple(files))

    def to_bytes(self) -> bytes:
        """Encode the change as one line of JSON with a format version, for the file of the dream."""
        return msgspec.json.encode({"v": VERSION, **msgspec.to_builtins(self)}) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "DreamChange":
        """Decode the bytes of a dream's file, as `to_bytes` encoded them. Raises `ValueError` for any other input."""
        members: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
        if members.get("v") != VERSION:
            raise ValueError(f"the dream has format version {members.get('v')}, not {VERSION}; update Coterie")
        return msgspec.convert(members, cls)


def new_dream_id(clock: Clock) -> str:
    """Return a new id for a dream, such as `20261118-131322-cfed`: UTC time, so that ids sort, and a random suffix."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(clock.now()))}-{secrets.token_hex(2)}"


def save_change(directory: Path, change: DreamChange) -> None:
    """Write *change*, a dream's proposal, durably to its JSON file in the store *directory*. Raises `OSError`."""
    path = directory / DREAMS / f"{change.id}.json"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    replace_file(path, change.to_bytes(), mode=0o600)


def load_changes(directory: Path) -> list[DreamChange]:
    """Return the saved changes of all dreams of the memory store *directory*, newest first; skip unreadable files."""
    changes = []
    for path in sorted((directory / DREAMS).glob("*.json"), reverse=True):
        if _ID.fullmatch(path.stem):
            try:
                changes.append(DreamChange.from_bytes(path.read_bytes()))
            except (OSError, ValueError):
                continue
    return changes


def find_change(directory: Path, name: str | None) -> DreamChange:
    """Return the saved change of the dream whose id begins with *name*; if None, of the newest with a waiting hunk.

    Searches the memory store *directory*; blocks. Raises `DreamRefused` if no dream or several dreams match.
    """
    changes = load_changes(directory)
    if name is None:
        found = [change for change in changes if change.count("waiting")][:1]
    else:
        found = [change for change in changes if change.id.startswith(name.removeprefix("dream-"))]
    if len(found) == 1:
        return found[0]
    if found:
        raise DreamRefused(f"{name!r} is the beginning of {len(found)} dream ids; give more characters of the id")
    if name is None:
        raise DreamRefused(f"no dream of the memories in {directory} waits for approval; run a new dream first")
    newest = f"the newest is {changes[0].id}" if changes else "run a dream first, because there is none yet"
    raise DreamRefused(f"no dream of the memories in {directory} has the id {name!r}; {newest}")
