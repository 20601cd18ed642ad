"""The lines of a log that another process may be writing."""

from collections.abc import Iterator
from pathlib import Path

import attrs


@attrs.frozen
class Line:
    """A whole line, without its newline."""

    number: int
    """The first is 1; blank ones count."""
    content: bytes
    end: int
    """Where the next one begins in the file."""


@attrs.define(eq=False)
class Lines:
    """The whole lines of one file, which need not exist yet, in the order in which they are taken off."""

    path: Path
    _taken: int = 0
    """Bytes."""
    _number: int = 0

    def size(self) -> int:
        """Bytes of the file now."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, until: int) -> Iterator[Line]:
        """The lines not taken off yet that end within the first *until* bytes; blank ones are left out.

        Every call reads the file anew from there, so a line that was cut off and written again is read as it is now.
        """
        # Shorter than what was read already: whoever cut it goes on from its new end.
        self._taken = min(self._taken, self.size())
        end, number = self._taken, self._number
        if end >= until:
            return
        with self.path.open("rb") as file:
            file.seek(end)
            for content in file:
                end, number = end + len(content), number + 1
                if end > until or not content.endswith(b"\n"):
                    return
                if content != b"\n":
                    yield Line(number, content[:-1], end)

    def take_off(self, line: Line) -> None:
        """Count *line*, and all before it, as read."""
        self._taken, self._number = line.end, line.number
