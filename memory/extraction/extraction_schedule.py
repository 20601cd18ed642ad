"""Schedule of memory extraction (a model call that saves memories): when, and for which part of a conversation."""

from collections.abc import Iterable

import attrs

from coterie.memory.compaction.cut_point import Messages, first_unknown
from coterie.memory.store.change import Author, MemoryChange


@attrs.frozen(kw_only=True)
class ExtractionSchedule:
    """Immutable state of one agent from which `is_due` decides if memories should be extracted."""

    every: int
    cursor: int = 1
    """Number of the first turn that no extraction has read."""
    loops: int = 0
    """Number of runs of the agent's turn loop since the last extraction started."""

    def after_run(self) -> "ExtractionSchedule":
        """Return the schedule after one more run of the agent's turn loop, which counts towards the next extraction."""
        return attrs.evolve(self, loops=self.loops + 1)

    def is_due(self, turn: int) -> bool:
        """True if `every` runs ended since the last extraction started, and a turn before *turn* was not read yet."""
        return self.loops >= self.every and turn > self.cursor

    def after_start(self) -> "ExtractionSchedule":
        """Return the schedule after an extraction started: the runs are counted from 0 again."""
        return attrs.evolve(self, loops=0)

    def after_extraction(self, turn: int) -> "ExtractionSchedule":
        """Return the schedule after an extraction has read all turns before *turn*."""
        return attrs.evolve(self, cursor=max(self.cursor, turn))


def count_unread(messages: Messages, turns: int) -> int:
    """Return the number of messages in the last *turns* turns, which an extraction reads; all if there are fewer."""
    return len(messages) - first_unknown(messages, turns)


def agent_already_wrote(changes: Iterable[MemoryChange], writer: Author, cursor: int) -> bool:
    """True if the agent of *writer* changed a memory itself in turn *cursor* or later, or in an unknown turn."""
    return any(
        change.author.by == "agent"
        and (change.author.session, change.author.agent) == (writer.session, writer.agent)
        and (change.author.turn is None or change.author.turn >= cursor)
        for change in changes
    )
