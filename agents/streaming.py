"""A reply as it comes: its text in pieces that can be followed, without an event for every word."""

from collections.abc import Callable
from typing import Any

import attrs
import trio

from coterie.agents.events import Event, Text

PAUSE = 0.1
"""Seconds between two events of one text."""


@attrs.define(eq=False)
class TextStream:
    """Takes the events of a stream and tells their text."""

    _turn: int
    _tell: Callable[[Event], None]
    _pieces: list[str] = attrs.field(factory=list)
    _told_at: float = float("-inf")

    def take(self, event: dict[str, Any]) -> None:
        """Take one event; text is told at most every PAUSE seconds, and at the end of its block."""
        if event["type"] == "content_block_delta" and event["delta"].get("type") == "text_delta":
            self._pieces.append(event["delta"]["text"])
            if trio.current_time() - self._told_at >= PAUSE:
                self._flush()
        elif event["type"] == "content_block_stop":
            self._flush()

    def _flush(self) -> None:
        if text := "".join(self._pieces):
            self._tell(Text(turn=self._turn, text=text))
            self._told_at = trio.current_time()
        self._pieces.clear()
