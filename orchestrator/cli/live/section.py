"""A part of the board that has as many lines as there is room for, and says what it leaves out."""

from collections.abc import Callable, Sequence

import attrs
from rich.text import Text

from coterie.orchestrator.cli.live.texts import cut


@attrs.frozen(kw_only=True)
class Section:
    """A title and rows, of which only those that are seen are made."""

    title: Text
    count: int
    """How many rows there are."""
    row: Callable[[int], Text]
    """Makes one of them."""
    ranks: Sequence[int] = ()
    """How much each row is wanted, the lowest first; without them the last rows are wanted most."""
    more: int = 0
    """Rows that are not even here."""

    @property
    def wanted(self) -> int:
        """Lines, for all of it."""
        return self.count + 1 if self.count else 0

    def lines(self, count: int, width: int) -> list[Text]:
        """The section in *count* lines of at most *width* columns; what has no room is counted."""
        room = count - 1
        if room <= 0 or not self.count:
            return []
        lines = self._wanted_most(room) if self.ranks else self._latest(room)
        return [cut(line, width) for line in lines]

    def _wanted_most(self, room: int) -> list[Text]:
        if self.count <= room:
            return [self.title, *map(self.row, range(self.count))]
        # For two lines, one and how many more there are say more than one and a title.
        wanted = sorted(range(self.count), key=lambda at: (self.ranks[at], at))
        kept = sorted(wanted[: max(room - 1, 1)])
        rest = Text(f"    ... {self.count - len(kept)} more", "dim")
        return [*([self.title] if room > 1 else []), *map(self.row, kept), rest]

    def _latest(self, room: int) -> list[Text]:
        first = max(self.count - room, 0)
        earlier = f"  {first + self.more} earlier" if first + self.more else ""
        return [self.title.copy().append(earlier, "dim"), *map(self.row, range(first, self.count))]
