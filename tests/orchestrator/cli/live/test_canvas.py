"""Lines on a terminal: each in its place, and only those that changed."""

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
    """A canvas and the terminal that it writes to."""

    console: Console
    canvas: Canvas
    terminal: Terminal
    _read: int = 0

    def paint(self, *lines: str | Text) -> str:
        """Paint *lines*; what was written for that."""
        self.canvas.paint([Text(line) if isinstance(line, str) else line for line in lines])
        return self.read()

    def read(self) -> str:
        """What was written since."""
        assert isinstance(self.console.file, io.StringIO)
        output = self.console.file.getvalue()[self._read :]
        self._read += len(output)
        self.terminal.feed(output)
        return output


@pytest.fixture
def easel() -> Iterator[CanvasTerminal]:
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


def test_only_lines_that_changed_are_written_again(easel: CanvasTerminal) -> None:
    easel.paint("one", "two", "three")
    assert easel.terminal.rows == ["one", "two", "three", "", ""]
    assert easel.paint("one", "two", "three") == ""
    written = easel.paint("one", Text("two", "bold"), "three")
    assert "two" in written
    assert "three" not in written
    easel.paint("one")
    assert easel.terminal.rows == ["one", "", "", "", ""]


def test_after_a_resize_everything_is_written_again(easel: CanvasTerminal) -> None:
    easel.paint("one", "two")
    easel.console.size = ConsoleDimensions(30, 4)
    written = easel.paint("one", "two", "3", "4", "there is no room for this")
    assert "one" in written
    assert easel.terminal.rows == ["one", "two", "3", "4", ""]


def test_a_line_that_is_too_wide_moves_no_other(easel: CanvasTerminal) -> None:
    easel.paint("x" * 100, "two")
    assert easel.terminal.rows[1] == "two"


def test_what_acts_on_a_terminal_becomes_a_question_mark(easel: CanvasTerminal) -> None:
    easel.paint(Text("a\x1b[2Jb\nc\x9bd\te", "red"))
    assert easel.terminal.rows[0] == "a?[2Jb?c?d?e"


class GoneTerminal(io.StringIO):
    """Its other end was closed."""

    def write(self, _text: str) -> int:
        """Fail as Linux does."""
        raise OSError(5, "Input/output error")


def test_a_terminal_that_is_gone_is_an_error_once() -> None:
    """Not another one when it is to be put back."""
    console = Console(file=GoneTerminal(), force_terminal=True, width=40, height=5)
    with pytest.raises(OSError, match="Input/output"), open_canvas(console):
        pass
