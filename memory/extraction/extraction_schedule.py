"""The schedule of memory extraction: when it is due, and for which part of a conversation."""

from collections.abc import Iterable

import attrs

from coterie.memory.compaction.cut_point import Messages, first_unknown
from coterie.memory.store.change import Author, MemoryChange


@attrs.frozen(kw_only=True)
class ExtractionSchedule:
    """When it is time, counted in runs of an agent's turn loop."""

    every: int
    cursor: int = 1
    """The first turn that was not looked at."""
    loops: int = 0
    """Those that have ended since it last began."""

    def after_run(self) -> "ExtractionSchedule":
        """After another run of the loop."""
        return attrs.evolve(self, loops=self.loops + 1)

    def is_due(self, turn: int) -> bool:
        """Whether it is time, before *turn*, the next."""
        return self.loops >= self.every and turn > self.cursor

    def after_start(self) -> "ExtractionSchedule":
        """After it was begun."""
        return attrs.evolve(self, loops=0)

    def after_extraction(self, turn: int) -> "ExtractionSchedule":
        """After all before *turn* was looked at."""
        return attrs.evolve(self, cursor=max(self.cursor, turn))


def count_unread(messages: Messages, turns: int) -> int:
    """How many messages at the end of a conversation belong to its last *turns*; all if it does not hold as many."""
    return len(messages) - first_unknown(messages, turns)


def agent_already_wrote(changes: Iterable[MemoryChange], writer: Author, cursor: int) -> bool:
    """Whether the agent that *writer* names has changed a memory in a turn from *cursor* on."""
    return any(
        change.author.by == "agent"
        and (change.author.session, change.author.agent) == (writer.session, writer.agent)
        and (change.author.turn is None or change.author.turn >= cursor)
        for change in changes
    )
