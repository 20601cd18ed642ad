"""A store and its dream; the test makes the edits of the model."""

from pathlib import Path

import attrs

from coterie.clock import Clock
from coterie.memory.dreaming.apply_hunks import apply_hunks
from coterie.memory.dreaming.dream_change import DreamChange, new_dream_id
from coterie.memory.dreaming.hunks import Hunk
from coterie.memory.dreaming.proposal import Proposal, propose
from coterie.memory.dreaming.working_copy import WorkingCopy, copy_store, write_file
from coterie.memory.layer_settings import DeletionPolicy
from coterie.memory.store.change import Author
from coterie.memory.store.memory_store import MemoryStore

USER = Author(by="user")
DREAM = Author(by="dream")


def topic(name: str, body: str, description: str = "") -> str:
    return f"---\nname: {name}\ndescription: {description or name}\ntype: project\n---\n{body}\n"


@attrs.frozen(kw_only=True)
class ManualDream:
    """A running dream."""

    store: MemoryStore
    copied: WorkingCopy
    clock: Clock

    @classmethod
    def of(cls, directory: Path, files: dict[str, str]) -> "ManualDream":
        """Create a store with *files*, and its working copy."""
        clock = Clock()
        store = MemoryStore.at(directory / "memory", clock)
        for path, text in files.items():
            store.write(path, text.encode(), USER, base=store.read(path))
        scratch = directory / "scratch"
        scratch.mkdir(parents=True)
        return cls(store=store, copied=copy_store(store, scratch), clock=clock)

    def write(self, path: str, text: str) -> None:
        """Write a file of the working copy, as the model would."""
        write_file(self.copied.work / path, text.encode())

    def read(self, path: str) -> str | None:
        """Read a file of the store."""
        content = self.store.read(path)
        return None if content is None else content.decode()

    def propose(self, said: str = "", deletions: DeletionPolicy = "ask") -> Proposal:
        """Return the proposal without applying it."""
        change = DreamChange(id=new_dream_id(self.clock), at=self.clock.now())
        proposal = propose(self.copied, change, deletions)
        return proposal.add_evidence(self.copied, said, lambda session, _agent, line: session == "s1" and line < 100)

    def apply_changes(self, deletions: DeletionPolicy = "ask") -> DreamChange:
        """Apply the hunks that need no approval."""
        proposal = self.propose(deletions=deletions)
        return apply_hunks(self.store, proposal.change, proposal.chosen, DREAM)

    def approve(self, change: DreamChange) -> DreamChange:
        """Apply all waiting hunks."""
        return apply_hunks(self.store, change, {hunk.number for hunk in change.hunks}, USER)

    def texts(self) -> dict[str, str]:
        """Return all memories and the index."""
        return {path: self.read(path) or "" for path in ("MEMORY.md", *self.store.paths())}


def states(change: DreamChange) -> dict[str, list[tuple[str, str]]]:
    """Return type and state of each hunk by file."""
    return {file.path: [_fate(hunk) for hunk in file.hunks] for file in change.files}


def _fate(hunk: Hunk) -> tuple[str, str]:
    return hunk.kind, hunk.state
