"""Canvas: lines at their places, and only changed lines are written."""

import io
from collections.abc import Iterator

import attrs
import pytest
from rich.console import Console, ConsoleDimensions
from rich.text import Text

from coterie.orchestrator.cli.live.canvas import Canvas, open_canvas
from tests.orchestrator.cli.live.terminal_emulator import Terminal


@attrs.define(eq=False)
class CanvasTerminal:
    """A canvas and its terminal."""

    console: Console
    canvas: Canvas
    terminal: Terminal
    _read: int = 0

    def paint(self, *lines: str | Text) -> str:
        """Paint *lines* and return the output."""
        self.canvas.paint([Text(line) if isinstance(line, str) else line for line in lines])
        return self.read()

    def read(self) -> str:
        """Output since the last call."""
        assert isinstance(self.console.file, io.StringIO)
        output = self.console.file.getvalue()[self._read :]
        self._read += len(output)
        self.terminal.feed(output)
        return output


@pytest.fixture
def painted() -> Iterator[CanvasTerminal]:
    console = Console(file=io.StringIO(), force_terminal=True, width=40, height=5, highlight=False, markup=False)
    terminal = Terminal(5)
    with open_canvas(console) as canvas:
        made = CanvasTerminal(console, canvas, terminal)
        made.read()
        assert terminal.is_open
        assert not terminal.has_cursor
        assert not terminal.wraps
        assert terminal.marks_pastes
        yield made
    made.read()
    assert terminal.is_as_found


def test_only_changed_lines_are_written_again(painted: CanvasTerminal) -> None:
    painted.paint("one", "two", "three")
    assert painted.terminal.rows == ["one", "two", "three", "", ""]
    assert painted.paint("one", "two", "three") == ""
    written = painted.paint("one", Text("two", "bold"), "three")
    assert "two" in written
    assert "three" not in written
    painted.paint("one")
    assert painted.terminal.rows == ["one", "", "", "", ""]


def test_after_a_resize_everything_is_written_again(painted: CanvasTerminal) -> None:
    painted.paint("one", "two")
    painted.console.size = ConsoleDimensions(30, 4)
    written = painted.paint("one", "two", "3", "4", "there is no room for this")
    assert "one" in written
    assert painted.terminal.rows == ["one", "two", "3", "4", ""]


class GoneTerminal(io.StringIO):
    """Output whose other end was closed."""

    def write(self, _text: str) -> int:
        """Fail as Linux does."""
        raise OSError(5, "Input/output error")


def test_a_closed_terminal_raises_once() -> None:
    """Restoring the closed terminal raises no second error."""
    console = Console(file=GoneTerminal(), force_terminal=True, width=40, height=5)
    with pytest.raises(OSError, match="Input/output"), open_canvas(console):
        pass
