"""Full-screen drawing on a terminal, which writes only the lines that have changed since the last drawing."""

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs
from rich.console import Console, ConsoleDimensions
from rich.text import Text

from coterie.orchestrator.cli.live.text_layout import visible

# Alternate screen, hidden cursor, no line wrapping so that a long line ends at the edge, and bracketed paste so that
# pasted text is not taken for keys.
_UNWRAPPED, _WRAPPED = "\x1b[?7l", "\x1b[?7h"
_OPEN = f"\x1b[?1049h\x1b[?25l{_UNWRAPPED}\x1b[?2004h"
_CLOSE = f"\x1b[?2004l{_WRAPPED}\x1b[?25h\x1b[?1049l"
_CLEAR = "\x1b[2J"
# Synchronized update, against flicker; other terminals ignore it.
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"


@attrs.define(eq=False)
class Canvas:
    """Full-screen area of a terminal. It stores the lines last written, so that `paint` writes only changed ones."""

    _console: Console
    _size: ConsoleDimensions | None = attrs.field(default=None, init=False)
    _written: list[str] = attrs.field(factory=list, init=False)

    def paint(self, lines: Sequence[Text]) -> None:
        """Replace the screen content by *lines*, from the top. Raises `OSError` if the terminal was closed."""
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
        """Write *text*, such as escape sequences, to the terminal and flush it. Raises `OSError`."""
        self._console.file.write(text)
        self._console.file.flush()

    def _encode(self, line: Text) -> str:
        with self._console.capture() as captured:
            self._console.print(visible(line), end="", soft_wrap=True)
        return captured.get()


@contextmanager
def open_canvas(console: Console) -> Iterator[Canvas]:
    """Yield a canvas on the terminal of *console*; restore the earlier screen after the block. Raises `OSError`."""
    canvas = Canvas(console)
    try:
        canvas.write(_OPEN)
        yield canvas
    finally:
        with contextlib.suppress(OSError):  # the terminal was closed
            canvas.write(_CLOSE)


@contextmanager
def open_unwrapped(console: Console) -> Iterator[None]:
    """Make the terminal cut long lines instead of wrapping them, until the block ends. Raises `OSError`."""
    if not console.is_terminal:
        yield
        return
    console.file.write(_UNWRAPPED)
    try:
        yield
    finally:
        console.file.write(_WRAPPED)
        console.file.flush()
