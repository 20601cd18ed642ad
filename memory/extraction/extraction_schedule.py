"""Schedule of memory extraction: when it is due, and for which part of a conversation."""

from collections.abc import Iterable

import attrs

from coterie.memory.compaction.cut_point import Messages, first_unknown
from coterie.memory.store.change import Author, MemoryChange


@attrs.frozen(kw_only=True)
class ExtractionSchedule:
    """State of the schedule; runs of the agent's turn loop are counted."""

    every: int
    cursor: int = 1
    """First turn that no extraction has seen."""
    loops: int = 0
    """Number of turn-loop runs since the last extraction started."""

    def after_run(self) -> "ExtractionSchedule":
        """Return the schedule after another run of the turn loop."""
        return attrs.evolve(self, loops=self.loops + 1)

    def is_due(self, turn: int) -> bool:
        """True if an extraction is due before *turn*, the next turn."""
        return self.loops >= self.every and turn > self.cursor

    def after_start(self) -> "ExtractionSchedule":
        """Return the schedule after an extraction started."""
        return attrs.evolve(self, loops=0)

    def after_extraction(self, turn: int) -> "ExtractionSchedule":
        """Return the schedule after an extraction has seen all turns before *turn*."""
        return attrs.evolve(self, cursor=max(self.cursor, turn))


def count_unread(messages: Messages, turns: int) -> int:
    """Count the messages of the last *turns* turns of a conversation; all messages if it has fewer turns."""
    return len(messages) - first_unknown(messages, turns)


def agent_already_wrote(changes: Iterable[MemoryChange], writer: Author, cursor: int) -> bool:
    """True if the agent named by *writer* has changed a memory in turn *cursor* or later."""
    return any(
        change.author.by == "agent"
        and (change.author.session, change.author.agent) == (writer.session, writer.agent)
        and (change.author.turn is None or change.author.turn >= cursor)
        for change in changes
    )
