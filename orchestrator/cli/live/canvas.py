"""Full-screen terminal canvas that rewrites only changed lines."""

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs
from rich.console import Console, ConsoleDimensions
from rich.text import Text

from coterie.orchestrator.cli.live.text_layout import visible

# The other screen, without a cursor; without wrapping, so that a line which is too long ends at the edge; and what is
# pasted is marked, so that it is no key.
_UNWRAPPED, _WRAPPED = "\x1b[?7l", "\x1b[?7h"
_OPEN = f"\x1b[?1049h\x1b[?25l{_UNWRAPPED}\x1b[?2004h"
_CLOSE = f"\x1b[?2004l{_WRAPPED}\x1b[?25h\x1b[?1049l"
_CLEAR = "\x1b[2J"
# Between these two a terminal that knows them shows nothing half done; others pass over them.
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"


@attrs.define(eq=False)
class Canvas:
    """All lines of a terminal. Only those that changed are written again."""

    _console: Console
    _size: ConsoleDimensions | None = attrs.field(default=None, init=False)
    _written: list[str] = attrs.field(factory=list, init=False)

    def paint(self, lines: Sequence[Text]) -> None:
        """Have the terminal show *lines*, from its top, and nothing else. Raises `OSError` if it is gone."""
        wanted = [self._encode(line) for line in lines[: self._console.size.height]]
        parts = []
        if self._size != self._console.size:
            self._size, self._written = self._console.size, []
            parts.append(_CLEAR)
        shown = len(self._written)
        for row, line in enumerate([*wanted, *[""] * (shown - len(wanted))]):
            if row >= shown or self._written[row] != line:
                parts.append(f"\x1b[{row + 1};1H\x1b[2K{line}")
        self._written = wanted
        if parts:
            self.write("".join([_BEGIN, *parts, _END]))

    def write(self, text: str) -> None:
        """Write what acts on the terminal, at once. Raises `OSError`."""
        self._console.file.write(text)
        self._console.file.flush()

    def _encode(self, line: Text) -> str:
        with self._console.capture() as captured:
            self._console.print(visible(line), end="", soft_wrap=True)
        return captured.get()


@contextmanager
def open_canvas(console: Console) -> Iterator[Canvas]:
    """The whole terminal of *console* until the block ends; then it shows what it showed before. Raises `OSError`."""
    canvas = Canvas(console)
    try:
        canvas.write(_OPEN)
        yield canvas
    finally:
        with contextlib.suppress(OSError):  # it is gone, and shows nothing any more
            canvas.write(_CLOSE)


@contextmanager
def open_unwrapped(console: Console) -> Iterator[None]:
    """Within the block a line that is too long for the terminal of *console* ends at its edge. Raises `OSError`."""
    if not console.is_terminal:
        yield
        return
    console.file.write(_UNWRAPPED)
    try:
        yield
    finally:
        console.file.write(_WRAPPED)
        console.file.flush()
