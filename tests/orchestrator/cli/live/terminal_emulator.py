"""Terminal emulator of a fixed size for the output of a board."""

import re

import attrs

_TOKEN = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|([^\x1b]+)")


@attrs.define(eq=False)
class Terminal:
    """Screen without wrapping; fails on sequences that the board must not write."""

    height: int = 24
    rows: list[str] = attrs.field(init=False)
    is_open: bool = attrs.field(default=False, init=False)
    has_cursor: bool = attrs.field(default=True, init=False)
    wraps: bool = attrs.field(default=True, init=False)
    marks_pastes: bool = attrs.field(default=False, init=False)
    _row: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.rows = [""] * self.height

    def feed(self, output: str) -> None:
        """Write *output* to the screen."""
        position = 0
        for token in _TOKEN.finditer(output):
            assert token.start() == position, f"what is this: {output[position : position + 20]!r}"
            position = token.end()
            number, command, text = token.groups()
            if text is not None:
                assert text.isprintable(), text
                self.rows[self._row] += text
            else:
                self._obey(number, command)
        assert position == len(output)

    def _obey(self, number: str, command: str) -> None:
        match command, number:
            case "H", _:
                row, column = number.split(";")
                assert column == "1"
                self._row = int(row) - 1
            case "J", "2":
                self.rows = [""] * self.height
            case "K", "2":
                self.rows[self._row] = ""
            case "h" | "l", "?1049":
                self.is_open = command == "h"
            case "h" | "l", "?25":
                self.has_cursor = command == "h"
            case "h" | "l", "?2004":
                self.marks_pastes = command == "h"
            case "h" | "l", "?7":
                self.wraps = command == "h"
            case _:
                assert command == "m" or number == "?2026", f"{number}{command}"

    @property
    def is_as_found(self) -> bool:
        """True if the terminal is in the state that a shell expects."""
        return (self.is_open, self.has_cursor, self.wraps, self.marks_pastes) == (False, True, True, False)
